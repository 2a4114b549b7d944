#include "planner/layers/token_path.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

std::int64_t row_bytes(const Writer& writer) { return 2 * writer.dim.routed_width; }

/// Rows, then their weights, through one collective each.
void exchange(Writer& writer, const std::string& name, CollectiveKind kind, CommGroup group, std::int64_t count,
              bool weighted, bool blocks_main) {
    writer.collective(name, kind, group, count * row_bytes(writer), blocks_main);
    if (weighted) writer.collective(name + ".weights", kind, group, 4 * count, blocks_main);
}

/// The slower of sending and receiving bounds an all-to-all: under skewed routing the most loaded rank receives more.
TokenRows all_to_all(Writer& writer, const std::string& name, const std::string& result, std::int64_t count,
                     TokenRows tokens, const PathUse& use) {
    const Part part = writer.script.current_part();
    if (writer.dim.expert == 1) {
        if (use.beside) use.beside();
        writer.script.part(part);
        return tokens;
    }
    const TokenRows moved = make_rows(writer, result, count, tokens.weighted);
    const std::int64_t most = std::max(writer.dim.sent_tokens, writer.dim.received_tokens);
    exchange(writer, name, CollectiveKind::all_to_all, CommGroup::expert, most, tokens.weighted, !use.beside);
    if (use.beside) {
        use.beside();
        writer.script.part(part);
        writer.script.join_collectives();
    }
    drop_rows(writer, tokens);
    return moved;
}

/// Padded tokens that come from one rank lie by expert as they are.
TokenRows sort_rows(Writer& writer, const std::string& name, TokenRows tokens) {
    const bool sorted_already = writer.model.drop_and_pad() && writer.dim.expert * writer.dim.expert_tensor == 1;
    if (writer.dim.local_experts < 2 || sorted_already) return tokens;
    const TokenRows sorted = make_rows(writer, name + ".sorted", writer.dim.expert_tokens, tokens.weighted);
    writer.memory_kernel(name + ".sort", 2 * writer.dim.expert_tokens * row_bytes(writer));
    drop_rows(writer, tokens);
    return sorted;
}

/// The same rows in fp32.
Slot widen(Writer& writer, const std::string& name, std::int64_t count, Slot rows) {
    const Slot wide = writer.make(name + ".fp32", {count, writer.dim.routed_width}, DataType::fp32);
    writer.memory_kernel(name + ".widen", 3 * count * row_bytes(writer));
    writer.script.drop(rows);
    return wide;
}

/// Fills `rows` from fp32 and drops the latter.
void round(Writer& writer, const std::string& name, std::int64_t count, Slot wide) {
    writer.memory_kernel(name + ".round", 3 * count * row_bytes(writer));
    writer.script.drop(wide);
}

/// Gathers over the expert tensor ranks or scatters the sums: from `before` rows a rank to `after`.
TokenRows over_tensor_ranks(Writer& writer, const std::string& name, CollectiveKind kind, std::int64_t before,
                            std::int64_t after, TokenRows tokens, bool widened) {
    const bool gathers = kind == CollectiveKind::all_gather;
    const std::string result = name + (gathers ? ".gathered" : ".scattered");
    const std::string call = name + (gathers ? ".gather" : ".scatter");
    const std::int64_t count = writer.dim.expert_tokens;
    if (!widened) {
        const TokenRows moved = make_rows(writer, result, after, tokens.weighted);
        exchange(writer, call, kind, CommGroup::expert_tensor, count, tokens.weighted, true);
        drop_rows(writer, tokens);
        return moved;
    }
    const Slot wide = widen(writer, call, before, tokens.rows);
    const Slot moved = writer.make(result + ".fp32", {after, writer.dim.routed_width}, DataType::fp32);
    writer.collective(call, kind, CommGroup::expert_tensor, 2 * count * row_bytes(writer));
    writer.script.drop(wide);
    const TokenRows rounded = make_rows(writer, result, after, false);
    round(writer, call, after, moved);
    return rounded;
}

}  // namespace

TokenRows make_rows(Writer& writer, const std::string& name, std::int64_t count, bool weighted) {
    TokenRows rows;
    rows.rows = writer.make(name, {count, writer.dim.routed_width});
    rows.weighted = weighted;
    if (weighted) rows.weights = writer.make(name + ".weights", {count}, DataType::fp32);
    return rows;
}

void drop_rows(Writer& writer, const TokenRows& rows) {
    writer.script.drop(rows.rows);
    if (rows.weighted) writer.script.drop(rows.weights);
}

TokenRows to_experts(Writer& writer, const std::string& name, TokenRows tokens, const PathUse& use) {
    const Dimensions& dim = writer.dim;
    tokens = all_to_all(writer, name + ".all_to_all", name + ".received", dim.received_tokens, tokens, use);
    if (dim.expert_tensor > 1)
        tokens = over_tensor_ranks(writer, name, CollectiveKind::all_gather, dim.received_tokens, dim.expert_tokens,
                                   tokens, use.widened);
    return sort_rows(writer, name, tokens);
}

TokenRows from_experts(Writer& writer, const std::string& name, TokenRows tokens, const PathUse& use) {
    const Dimensions& dim = writer.dim;
    tokens = sort_rows(writer, name, tokens);
    if (dim.expert_tensor > 1)
        tokens = over_tensor_ranks(writer, name, CollectiveKind::reduce_scatter, dim.expert_tokens, dim.received_tokens,
                                   tokens, use.widened);
    return all_to_all(writer, name + ".all_to_all", name + ".returned", dim.sent_tokens, tokens, use);
}

}  // namespace stowage::layers
