#pragma once

#include <cstdint>
#include <vector>

namespace stowage::program {

/// One entry of a pipeline schedule, in the order the host of one rank issues it.
struct ScheduleStep {
    enum class Kind : std::uint8_t {
        receive_forward,
        forward,
        send_forward,
        send_forward_receive_backward,
        receive_backward,
        backward,
        send_backward,
        send_backward_receive_forward,
    };
    Kind kind{};
    std::int64_t microbatch = 0;  ///< what is computed or sent
    std::int64_t received = -1;   ///< grouped calls: the microbatch that is received
    friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

/// Forwards that rank `pipeline_rank` runs before its first backward: min(stages - rank - 1, microbatches).
std::int64_t warmup_microbatches(std::int64_t pipeline_rank, std::int64_t stages, std::int64_t microbatches);

/// Megatron's non-interleaved 1F1B; with one stage forward and backward alternate. Transfers that a rank does not have
/// (the first stage receives no forward, the last sends none) are left out. Result: exactly `microbatches` forwards and
/// backwards, each backward after its forward, both in rising order. Source: Megatron-LM,
/// pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving; Narayanan et al. 2021,
/// section 2.2.
std::vector<ScheduleStep> one_forward_one_backward(std::int64_t pipeline_rank, std::int64_t stages,
                                                   std::int64_t microbatches);

}  // namespace stowage::program
