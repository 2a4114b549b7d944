// Rules that scenarios/reader judges while it reads Megatron-LM's arguments; here are their words only. A test holds
// the ids of the two against each other.

#include <array>

#include "planner/rules/rule_pages.hpp"

namespace stowage::rules {
namespace {

constexpr RulePage page(std::string_view id, Severity severity, std::string_view condition, std::string_view reason,
                        std::string_view nearest_legal, std::string_view source) {
    return {id, kAllSets, severity, JudgedOn::arguments, condition, reason, nearest_legal, source};
}

constexpr auto kIllegal = Severity::illegal;
constexpr auto kChanged = Severity::legal_with_changes;

constexpr std::array kPages = {
    page("O1", kIllegal,
         "cpu-offloading, or cpu-offloading-num-layers above 0, beside fine-grained-activation-offloading.",
         "Whole layers and single modules would both own the hooks of saved tensors.",
         "Leave cpu-offloading or fine-grained-activation-offloading out.",
         "transformer_config.py, fine_grained_activation_offloading"),
    page("O2", kIllegal, "fine-grained-activation-offloading without offload-modules.",
         "Offloading is switched on and there is nothing to offload.", "Name the modules to offload.",
         "transformer_config.py, offload_modules"),
    page("O3", kIllegal, "offload-modules has a word that is no module.", "This Megatron does not know the module.",
         "Drop the word, or spell it as the hint says.", "transformer_config.py, offload_modules"),
    page("O13", kIllegal, "moe-paged-stash beside an offloaded expert_fc1, moe_act or fused_group_mlp.",
         "The stash and the offload would both own the experts' saved tensors.",
         "Drop the expert modules from offload-modules, or leave moe-paged-stash out.",
         "transformer_config.py, moe_paged_stash"),
    page("O14", kIllegal,
         "moe-flex-dispatcher-backend ncclep with the flex dispatcher and overlap-moe-expert-parallel-comm, and "
         "expert_fc1 offloaded.",
         "This backend frees the experts' input early.",
         "Drop expert_fc1 from offload-modules, or use another backend.",
         "transformer_config.py, moe_flex_dispatcher_backend"),
    page("O15", kIllegal, "use-transformer-engine-op-fuser, and expert_fc1 or moe_act offloaded.",
         "The fused experts have no groups expert_fc1 and moe_act.",
         "Offload fused_group_mlp instead, or leave use-transformer-engine-op-fuser out.",
         "transformer_config.py, use_transformer_engine_op_fuser"),
    page("O16", kIllegal, "transformer-impl is not transformer_engine, and something is offloaded.",
         "The hooks are in the layers of Transformer Engine.", "Say transformer-impl: transformer_engine.",
         "training/arguments.py, fine_grained_activation_offloading"),
    page("fine_grained_activation_offloading", kChanged, "offload-modules without fine-grained-activation-offloading.",
         "The switch is off, so the list has no effect.", "Set fine-grained-activation-offloading.",
         "transformer_config.py, offload_modules"),

    page("G1", kIllegal, "cuda-graph-modules has the older word full beside others.",
         "full is the whole layer, which has every part already.", "Give full alone: the whole layer.",
         "training/arguments.py, cuda_graph_modules"),
    page("G3", kIllegal,
         "cuda-graph-modules has full_iteration or full_iteration_inference beside others, or full_iteration with "
         "cuda-graph-impl: transformer_engine.",
         "The older words mean a graph of everything, which has no parts.",
         "Give cuda-graph-impl: full_iteration and no modules.", "training/arguments.py, cuda_graph_modules"),
    page("G3", kChanged, "cuda-graph-modules is full_iteration alone.",
         "The older word is taken as cuda-graph-impl: full_iteration.",
         "Give cuda-graph-impl: full_iteration and no modules.", "training/arguments.py, cuda_graph_modules"),
    page("G4", kIllegal,
         "inference-cuda-graph-scope is not layer or block with cuda-graph-impl: local, or not none with another.",
         "Inference captures with local graphs only.", "Leave inference-cuda-graph-scope out.",
         "cuda_graph_config.py, inference scope"),
    page("G5", kIllegal,
         "cpu-offloading, or cpu-offloading-num-layers above 0, and cuda-graph-impl is local or transformer_engine.",
         "Whole layers would be offloaded beside graphs of single layers.",
         "Leave cpu-offloading out, or set cuda-graph-impl to none or full_iteration.",
         "transformer_config.py, cpu_offloading"),
    page("G12", kIllegal,
         "moe-router-padding-for-fp8 or moe-router-padding-for-quantization, moe_preprocess captured, the alltoall "
         "dispatcher, and experts that do not drop and pad.",
         "Padding brings counts to the host inside the captured moe_preprocess.",
         "Drop moe_preprocess from cuda-graph-modules, or leave the padding out.",
         "transformer_config.py, cuda_graph_modules"),
    page("cuda_graph_impl", kIllegal, "cuda-graph-impl is no implementation.", "This Megatron does not know the word.",
         "Say none, local, transformer_engine or full_iteration.", "transformer_config.py, cuda_graph_impl"),
    page("cuda_graph_modules", kIllegal, "cuda-graph-modules has a word that is no part of a layer.",
         "This Megatron does not know the word.", "Drop the word, or spell it as the hint says.",
         "training/arguments.py, cuda_graph_modules"),

    page("R5", kIllegal, "moe-input-jitter-eps above 0, recompute-modules has moe, and a graph holds moe.",
         "A replayed graph cannot give the recomputation the jitter of its forward.",
         "Drop moe from recompute-modules, or leave the jitter out.", "transformer_config.py, recompute_modules"),
    page("R7", kIllegal, "moe-grouped-gemm is false and recompute-modules has moe_act.",
         "The activation is recomputed only where the experts are one grouped product.", "Set moe-grouped-gemm.",
         "transformer_config.py, recompute_modules"),
    page("E5", kIllegal, "cuda-graph-impl is full_iteration, and the check for NaN in loss and gradients is on.",
         "The check waits for the device inside the one graph.", "Set no-check-for-nan-in-loss-and-grad.",
         "training/arguments.py, cuda_graph_impl"),

    page("cpu_offloading", kIllegal,
         "cpu-offloading, or cpu-offloading-num-layers above 0, with pipeline stages or recomputation.",
         "Whole layers are offloaded only in one stage and without recomputation.",
         "Leave cpu-offloading out, or use one pipeline stage and no recompute-granularity.",
         "transformer_config.py, cpu_offloading"),
    page("moe_paged_stash", kIllegal, "moe-paged-stash without moe-expert-rank-capacity-factor.",
         "The stash has no size without it.", "Give moe-expert-rank-capacity-factor.",
         "transformer_config.py, moe_paged_stash"),
    page("recompute_modules", kChanged, "recompute-modules is given and recompute-granularity is not selective.",
         "Modules are recomputed by name only with selective granularity, so the list has no effect.",
         "Set recompute-granularity to selective, or leave recompute-modules out.",
         "transformer_config.py, recompute_granularity"),
    page("sequence_parallel", kChanged, "sequence-parallel with one tensor-parallel rank.",
         "There is nothing to split, and it is switched off.", "Leave it out, or use tensor parallelism.",
         "training/arguments.py, sequence_parallel"),
};

}  // namespace

std::span<const RulePage> argument_pages() { return kPages; }

}  // namespace stowage::rules
