#include "reports/megatron_flags.hpp"

#include <fmt/format.h>

namespace stowage::reports {

std::string plain_number(double value) { return fmt::format("{}", value); }

MegatronFlags megatron_flags(const types::OffloadChoice& choice) {
    MegatronFlags flags;
    if (choice.modules.empty()) return flags;
    const types::OffloadChoice defaults;
    flags.environment["NVTE_CPU_OFFLOAD_V1"] = "1";
    flags.arguments.emplace_back("--fine-grained-activation-offloading");
    flags.arguments.push_back("--offload-modules " + choice.modules.joined(" "));
    flags.arguments.push_back("--activation-offload-fraction " + plain_number(choice.fraction));
    if (choice.min_offloaded_tensor_size != defaults.min_offloaded_tensor_size)
        flags.arguments.push_back(fmt::format("--min-offloaded-tensor-size {}", choice.min_offloaded_tensor_size));
    if (choice.delta_bytes_across_pp_ranks != defaults.delta_bytes_across_pp_ranks)
        flags.arguments.push_back(
            fmt::format("--delta-offload-bytes-across-pp-ranks {}", choice.delta_bytes_across_pp_ranks));
    if (choice.max_inflight_offloads)
        flags.arguments.push_back(
            fmt::format("--fine-grained-offloading-max-inflight-offloads {}", *choice.max_inflight_offloads));
    if (choice.delay_until_cuda_graph) flags.arguments.emplace_back("--delay-offload-until-cuda-graph");
    return flags;
}

}  // namespace stowage::reports
