#include "planner/layers/token_path.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

TokenRows make_rows(Writer& writer, const std::string& name, std::int64_t count, bool weighted) {
    TokenRows rows;
    rows.rows = writer.make(name, {count, writer.dim.hidden});
    rows.weighted = weighted;
    if (weighted) rows.weights = writer.make(name + ".weights", {count}, DataType::fp32);
    return rows;
}

void drop_rows(Writer& writer, const TokenRows& rows) {
    writer.script.drop(rows.rows);
    if (rows.weighted) writer.script.drop(rows.weights);
}

std::int64_t row_bytes(const Writer& writer) { return 2 * writer.dim.hidden; }

/// Rows, then their weights, through one collective each.
void exchange(Writer& writer, const std::string& name, CollectiveKind kind, CommGroup group, std::int64_t count,
              bool weighted) {
    writer.collective(name, kind, group, count * row_bytes(writer));
    if (weighted) writer.collective(name + ".weights", kind, group, 4 * count);
}

/// The slower of sending and receiving bounds an all-to-all: under skewed routing the most loaded rank receives more.
void all_to_all(Writer& writer, const std::string& name, bool weighted) {
    const std::int64_t count = std::max(writer.dim.sent_tokens, writer.dim.received_tokens);
    exchange(writer, name, CollectiveKind::all_to_all, CommGroup::expert, count, weighted);
}

TokenRows sort_rows(Writer& writer, const std::string& name, TokenRows tokens) {
    if (writer.dim.local_experts < 2) return tokens;
    const TokenRows sorted = make_rows(writer, name + ".sorted", writer.dim.expert_tokens, tokens.weighted);
    writer.memory_kernel(name + ".sort", 2 * writer.dim.expert_tokens * row_bytes(writer));
    drop_rows(writer, tokens);
    return sorted;
}

}  // namespace

TokenRows to_experts(Writer& writer, const std::string& name, TokenRows tokens) {
    const Dimensions& dim = writer.dim;
    if (dim.expert > 1) {
        const TokenRows received = make_rows(writer, name + ".received", dim.received_tokens, tokens.weighted);
        all_to_all(writer, name + ".all_to_all", tokens.weighted);
        drop_rows(writer, tokens);
        tokens = received;
    }
    if (dim.expert_tensor > 1) {
        const TokenRows gathered = make_rows(writer, name + ".gathered", dim.expert_tokens, tokens.weighted);
        exchange(writer, name + ".gather", CollectiveKind::all_gather, CommGroup::expert_tensor, dim.expert_tokens,
                 tokens.weighted);
        drop_rows(writer, tokens);
        tokens = gathered;
    }
    return sort_rows(writer, name, tokens);
}

TokenRows from_experts(Writer& writer, const std::string& name, TokenRows tokens) {
    const Dimensions& dim = writer.dim;
    tokens = sort_rows(writer, name, tokens);
    if (dim.expert_tensor > 1) {
        const TokenRows scattered = make_rows(writer, name + ".scattered", dim.received_tokens, tokens.weighted);
        exchange(writer, name + ".scatter", CollectiveKind::reduce_scatter, CommGroup::expert_tensor, dim.expert_tokens,
                 tokens.weighted);
        drop_rows(writer, tokens);
        tokens = scattered;
    }
    if (dim.expert > 1) {
        const TokenRows returned = make_rows(writer, name + ".returned", dim.sent_tokens, tokens.weighted);
        all_to_all(writer, name + ".all_to_all", tokens.weighted);
        drop_rows(writer, tokens);
        tokens = returned;
    }
    return tokens;
}

}  // namespace stowage::layers
