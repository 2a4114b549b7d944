#include "planner/layers/stowage/expert_rows.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

bool stays(const Dimensions& dim) { return dim.expert == 1 && dim.expert_tokens == chosen_rows(dim); }

/// The slower of sending and receiving bounds an all-to-all.
void travel(StowageWriter& writer, const std::string& name, bool weighted) {
    const Dimensions& dim = writer.dim;
    if (dim.expert == 1) return;
    const std::int64_t most = std::max(dim.sent_tokens, dim.received_tokens);
    const auto send = [&](std::string what, std::int64_t bytes) {
        writer.script.collective(
            {std::move(what), CollectiveKind::all_to_all, CommGroup::expert, Bytes{most * bytes}, true});
    };
    send(name + ".all_to_all", 2 * dim.routed_width);
    if (weighted) send(name + ".all_to_all.weights", 4);
}

ExpertRows move(StowageWriter& writer, const std::string& name, const ExpertRows& rows, bool forward) {
    const Dimensions& dim = writer.dim;
    if (stays(dim)) return rows;
    const bool weighted = rows.weights.has_value();
    const std::int64_t before = forward ? chosen_rows(dim) : dim.expert_tokens;
    const std::int64_t after = forward ? dim.expert_tokens : chosen_rows(dim);
    travel(writer, name, weighted);
    const ExpertRows moved = make_expert_rows(writer, name + (forward ? ".received" : ".returned"), after, weighted);
    KernelCall call{Call::exchange_rows, row_sizes(writer, before, dim.routed_width), {reads(rows.rows)}};
    call.sizes.depth = after;
    call.sizes.batch = dim.expert;
    call.sizes.experts = dim.local_experts;
    call.sizes.forward = forward;
    if (rows.weights) call.operands.push_back(reads(*rows.weights));
    call.operands.push_back(writes(moved.rows));
    if (moved.weights) call.operands.push_back(writes(*moved.weights));
    const std::int64_t bytes = 2 * dim.routed_width + (weighted ? 4 : 0);
    writer.memory_kernel(name + ".exchange", (before + after) * bytes, std::move(call));
    drop_expert_rows(writer, rows);
    return moved;
}

}  // namespace

std::int64_t chosen_rows(const Dimensions& dim) { return dim.local_tokens * dim.topk; }

std::int64_t planned_expert_rows(const Dimensions& dim) { return (dim.expert_tokens + dim.experts - 1) / dim.experts; }

CallSizes row_sizes(const StowageWriter& writer, std::int64_t rows, std::int64_t columns) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    sizes.gradient_type = writer.gradient_type();
    return sizes;
}

ExpertRows make_expert_rows(StowageWriter& writer, const std::string& name, std::int64_t count, bool weighted) {
    ExpertRows made;
    made.rows = writer.make(name, {count, writer.dim.routed_width});
    if (weighted) made.weights = writer.make(name + ".weights", {count}, DataType::fp32);
    return made;
}

void drop_expert_rows(StowageWriter& writer, const ExpertRows& rows) {
    writer.script.drop(rows.rows);
    if (rows.weights) writer.script.drop(*rows.weights);
}

ExpertRows rows_to_experts(StowageWriter& writer, const std::string& name, const ExpertRows& rows) {
    return move(writer, name, rows, true);
}

ExpertRows rows_from_experts(StowageWriter& writer, const std::string& name, const ExpertRows& rows) {
    return move(writer, name, rows, false);
}

}  // namespace stowage::layers
