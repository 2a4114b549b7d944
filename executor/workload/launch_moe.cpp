#include "executor/workload/launch_moe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "executor/workload/kernels/moe.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

/// One call's sizes and buffers.
struct Launch {
    const CallSizes& sizes;
    std::span<void* const> buffers;
    cudaStream_t stream;

    void expect(std::size_t operands) const {
        STOWAGE_CHECK(buffers.size() == operands, "the operands are not those of the call");
    }
    template <class Value = void>
    [[nodiscard]] Value* at(std::size_t operand) const {
        return static_cast<Value*>(buffers[operand]);
    }
    [[nodiscard]] kernels::Extent extent() const { return {sizes.rows, sizes.columns}; }
};

kernels::Router router_of(const CallSizes& sizes) {
    using Scores = kernels::Router::Scores;
    kernels::Router router;
    router.rows = sizes.rows;
    router.experts = sizes.experts;
    router.topk = sizes.topk;
    router.groups = std::max<std::int64_t>(sizes.router_groups, 1);
    router.chosen_groups = sizes.router_groups > 0 ? sizes.router_topk_groups : 1;
    if (sizes.softmax_first) router.scores = Scores::softmax_first;
    if (sizes.sigmoid) router.scores = Scores::sigmoid;
    router.scale = static_cast<float>(sizes.value);
    return router;
}

void router_forward(const Launch& launch) {
    launch.expect(4);
    kernels::router_forward(launch.at<const float>(0), launch.at<const std::int32_t>(1), launch.at<float>(2),
                            launch.at<std::int32_t>(3), router_of(launch.sizes), launch.stream);
}

void router_backward(const Launch& launch) {
    launch.expect(4);
    kernels::router_backward(launch.at<const float>(0), launch.at<const std::int32_t>(1), launch.at<const float>(2),
                             launch.at(3), router_of(launch.sizes), launch.stream);
}

void route_rows(const Launch& launch) {
    launch.expect(4);
    kernels::route_rows(launch.at<const std::int32_t>(0), launch.at<std::int32_t>(1), launch.at<std::int32_t>(2),
                        launch.at<std::int32_t>(3), launch.sizes.rows * launch.sizes.topk, launch.sizes.experts,
                        launch.stream);
}

/// Where the call does not say how many experts there are: as many parts as there may be.
std::int64_t segments_of(const CallSizes& sizes) { return sizes.experts > 0 ? sizes.experts : kernels::kMostExperts; }

void permute_forward(const Launch& launch) {
    launch.expect(5);
    kernels::Permute buffers;
    buffers.x = launch.at(0);
    buffers.weights = launch.at<const float>(1);
    buffers.sources = launch.at<const std::int32_t>(2);
    buffers.y = launch.at(3);
    buffers.row_weights = launch.at<float>(4);
    buffers.topk = launch.sizes.topk;
    buffers.segments = segments_of(launch.sizes);
    kernels::permute(buffers, launch.extent(), launch.stream);
}

void unpermute_backward(const Launch& launch) {
    launch.expect(3);
    kernels::Permute buffers;
    buffers.x = launch.at(0);
    buffers.sources = launch.at<const std::int32_t>(1);
    buffers.y = launch.at(2);
    buffers.topk = launch.sizes.topk;
    buffers.segments = segments_of(launch.sizes);
    kernels::permute(buffers, launch.extent(), launch.stream);
}

void permute_backward(const Launch& launch) {
    launch.expect(5);
    kernels::Unpermute buffers;
    buffers.y = launch.at(0);
    buffers.row_weights = launch.at<const float>(1);
    buffers.places = launch.at<const std::int32_t>(2);
    buffers.z = launch.at(3);
    buffers.weights = launch.at<float>(4);
    buffers.topk = launch.sizes.topk;
    kernels::unpermute(buffers, launch.extent(), launch.stream);
}

void unpermute_forward(const Launch& launch) {
    const bool addend = launch.sizes.has_addend;
    launch.expect(addend ? 4 : 3);
    kernels::Unpermute buffers;
    buffers.y = launch.at(0);
    buffers.places = launch.at<const std::int32_t>(1);
    if (addend) buffers.addend = launch.at(2);
    buffers.z = launch.at(addend ? 3 : 2);
    buffers.topk = launch.sizes.topk;
    kernels::unpermute(buffers, launch.extent(), launch.stream);
}

/// With the rows' weights or without: the number of operands says which.
void exchange_rows(const Launch& launch) {
    const bool weights = launch.buffers.size() == 4;
    launch.expect(weights ? 4 : 2);
    const CallSizes& sizes = launch.sizes;
    kernels::Exchange buffers;
    buffers.x = launch.at(0);
    if (weights) buffers.weights = launch.at<const float>(1);
    buffers.y = launch.at(weights ? 2 : 1);
    if (weights) buffers.y_weights = launch.at<float>(3);
    buffers.x_rows = sizes.rows;
    buffers.ranks = sizes.batch;
    buffers.experts = sizes.experts;
    buffers.to_experts = sizes.forward;
    kernels::exchange_rows(buffers, {sizes.depth, sizes.columns}, launch.stream);
}

void weighted_activation_forward(const Launch& launch) {
    launch.expect(3);
    kernels::weighted_activation_forward(launch.at(0), launch.at<const float>(1), launch.at(2), launch.extent(),
                                         launch.stream);
}

void weighted_activation_backward(const Launch& launch) {
    launch.expect(6);
    kernels::WeightedActivationBackward buffers;
    buffers.g = launch.at(0);
    buffers.weights = launch.at<const float>(1);
    buffers.da = launch.at(2);
    buffers.dg = launch.at(3);
    buffers.a = launch.at(4);
    buffers.dweights = launch.at<float>(5);
    kernels::weighted_activation_backward(buffers, launch.extent(), launch.stream);
}

void repeat_rows(const Launch& launch) {
    launch.expect(2);
    kernels::repeat_rows(launch.at(0), launch.at(1), launch.sizes.rows * launch.sizes.columns, launch.sizes.batch,
                         launch.stream);
}

void keep_rows(const Launch& launch) {
    launch.expect(2);
    const std::int64_t bytes = launch.sizes.rows * launch.sizes.columns * types::size_of(types::DataType::bf16);
    const std::byte* from = launch.at<const std::byte>(0) + (launch.sizes.shift ? bytes : 0);
    // What goes wrong stays as the last error, as after a kernel.
    cudaMemcpyAsync(launch.at(1), from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, launch.stream);
}

void join_columns(const Launch& launch) {
    launch.expect(3);
    kernels::join_columns(launch.at(0), launch.at(1), launch.at(2), launch.extent(), launch.stream);
}

void split_columns(const Launch& launch) {
    launch.expect(3);
    kernels::split_columns(launch.at(0), launch.at(1), launch.at(2), launch.extent(), launch.stream);
}

void add(const Launch& launch) {
    launch.expect(2);
    kernels::add(launch.at(0), launch.at(1), launch.sizes.rows * launch.sizes.columns, launch.stream);
}

bool is_router(Call call) { return call == Call::router_forward || call == Call::router_backward; }

bool has_choices(Call call) {
    switch (call) {
        case Call::router_forward:
        case Call::router_backward:
        case Call::route_rows:
        case Call::permute_forward:
        case Call::permute_backward:
        case Call::unpermute_forward:
        case Call::unpermute_backward: return true;
        default: return false;
    }
}

bool has_experts(Call call) {
    return is_router(call) || call == Call::route_rows || call == Call::counts_to_host || call == Call::exchange_rows;
}

bool has_vector_rows(Call call) { return is_moe(call) && !is_router(call) && call != Call::route_rows; }

void require(bool holds, Call call, const char* what, std::int64_t value, std::string_view rule) {
    if (holds) return;
    throw types::UnsupportedError(
        fmt::format("{}: {} is {}, but the executor's kernels take {}", layers::name_of(call), what, value, rule));
}

bool is_between(std::int64_t value, std::int64_t least, std::int64_t most) { return value >= least && value <= most; }

void require_router_supported(Call call, const CallSizes& sizes) {
    const std::int64_t groups = sizes.router_groups;
    require(sizes.topk <= sizes.experts, call, "the number of choices", sizes.topk, "at most one for each expert");
    if (groups <= 1) return;
    require(groups <= kernels::kMostGroups, call, "the number of groups of experts", groups,
            fmt::format("at most {}", kernels::kMostGroups));
    require(sizes.experts % groups == 0, call, "the number of groups of experts", groups,
            fmt::format("groups of one size, of {} experts", sizes.experts));
    require(is_between(sizes.router_topk_groups, 1, groups), call, "the number of groups to choose from",
            sizes.router_topk_groups, fmt::format("1 to {}", groups));
    require(sizes.topk <= sizes.experts / groups * sizes.router_topk_groups, call, "the number of choices", sizes.topk,
            "at most the experts of the groups chosen from");
}

}  // namespace

bool is_moe(Call call) {
    switch (call) {
        case Call::exchange_rows:
        case Call::weighted_activation_forward:
        case Call::weighted_activation_backward:
        case Call::repeat_rows:
        case Call::keep_rows:
        case Call::join_columns:
        case Call::split_columns:
        case Call::add: return true;
        default: return has_choices(call);
    }
}

void require_moe_supported(Call call, const CallSizes& sizes) {
    if (has_vector_rows(call)) {
        require(sizes.columns % kernels::kVector == 0, call, "the row length", sizes.columns, "multiples of 8");
    }
    if (has_choices(call)) {
        require(is_between(sizes.topk, 1, kernels::kMostChoices), call, "the number of choices", sizes.topk,
                fmt::format("1 to {}", kernels::kMostChoices));
    }
    if (has_experts(call)) {
        require(is_between(sizes.experts, 1, kernels::kMostExperts), call, "the number of experts", sizes.experts,
                fmt::format("1 to {}", kernels::kMostExperts));
    }
    if (is_router(call)) require_router_supported(call, sizes);
}

void launch_moe(const CallShape& shape, std::span<void* const> buffers, cudaStream_t stream) {
    const Launch launch{shape.sizes, buffers, stream};
    switch (shape.call) {
        case Call::router_forward: return router_forward(launch);
        case Call::router_backward: return router_backward(launch);
        case Call::route_rows: return route_rows(launch);
        case Call::permute_forward: return permute_forward(launch);
        case Call::permute_backward: return permute_backward(launch);
        case Call::exchange_rows: return exchange_rows(launch);
        case Call::unpermute_forward: return unpermute_forward(launch);
        case Call::unpermute_backward: return unpermute_backward(launch);
        case Call::weighted_activation_forward: return weighted_activation_forward(launch);
        case Call::weighted_activation_backward: return weighted_activation_backward(launch);
        case Call::repeat_rows: return repeat_rows(launch);
        case Call::keep_rows: return keep_rows(launch);
        case Call::join_columns: return join_columns(launch);
        case Call::split_columns: return split_columns(launch);
        case Call::add: return add(launch);
        default: break;
    }
    STOWAGE_CHECK(false, "a call that is no kernel of ours");
}

}  // namespace stowage::executor
