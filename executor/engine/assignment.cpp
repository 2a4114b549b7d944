#include "executor/engine/assignment.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "executor/workload/random.hpp"
#include "planner/layers/kernel_call.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

/// Step number of the stream of numbers that orders tokens: no step has it.
constexpr std::uint64_t kOrderOfTokens = ~std::uint64_t{0};

/// `rows` over experts `begin` to `end`, as evenly as whole rows allow.
void spread(std::vector<std::int64_t>& counts, std::int64_t begin, std::int64_t end, std::int64_t rows) {
    for (std::int64_t expert = begin; expert < end; ++expert)
        counts[static_cast<std::size_t>(expert)] = layers::rows_before(expert - begin + 1, rows, end - begin) -
                                                   layers::rows_before(expert - begin, rows, end - begin);
}

std::vector<std::int64_t> shuffled(std::int64_t tokens, std::uint64_t seed) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(tokens));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const std::uint64_t key = stream_key(seed, kOrderOfTokens, 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_word(key, i) % i]);
    return order;
}

}  // namespace

std::vector<std::int64_t> rows_of_experts(const layers::Dimensions& dimensions) {
    const std::int64_t rows = dimensions.local_tokens * dimensions.topk;
    const std::int64_t own = dimensions.local_experts;
    std::vector<std::int64_t> counts(static_cast<std::size_t>(dimensions.experts));
    const bool skewed = dimensions.capacity == 0 && dimensions.received_tokens != dimensions.sent_tokens;
    if (!skewed) {
        spread(counts, 0, dimensions.experts, rows);
        return counts;
    }
    const std::int64_t kept = std::min(dimensions.received_tokens / dimensions.expert, rows);
    spread(counts, 0, own, kept);
    spread(counts, own, dimensions.experts, rows - kept);
    return counts;
}

std::vector<std::int32_t> forced_assignment(const layers::Dimensions& dimensions, std::uint64_t seed) {
    const std::int64_t tokens = dimensions.local_tokens;
    const std::vector<std::int64_t> counts = rows_of_experts(dimensions);
    STOWAGE_CHECK(*std::max_element(counts.begin(), counts.end()) <= tokens, "an expert gets each token once at most");
    const std::vector<std::int64_t> order = shuffled(tokens, seed);
    std::vector<std::int32_t> assignment(static_cast<std::size_t>(tokens * dimensions.topk));
    std::int64_t dealt = 0;
    for (std::size_t expert = 0; expert < counts.size(); ++expert)
        for (std::int64_t i = 0; i < counts[expert]; ++i, ++dealt) {
            const std::int64_t token = order[static_cast<std::size_t>(dealt % tokens)];
            assignment[static_cast<std::size_t>(token * dimensions.topk + dealt / tokens)] =
                static_cast<std::int32_t>(expert);
        }
    return assignment;
}

}  // namespace stowage::executor
