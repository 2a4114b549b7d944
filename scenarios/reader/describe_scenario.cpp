#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

constexpr IntegerRange kRanks{1, 1'000'000};
// Whether a policy's value is legal is a rule of the planner; the reader only keeps out what no arithmetic survives.
constexpr IntegerRange kAnyWhole{-1'000'000'000'000, 1'000'000'000'000};
constexpr NumberRange kAnyNumber{-1e9, 1e9};

void describe_batch(Fields& fields, types::Batch& batch) {
    fields.count({"micro_batch_size", "sequences of one forward"}, batch.micro_batch_size, IntegerRange{1, 1'000'000});
    fields.count({"global_batch_size", "sequences of one step", true}, batch.global_batch_size,
                 IntegerRange{1, 10'000'000});
    fields.count({"seq_length", "tokens of a sequence", true}, batch.seq_length, IntegerRange{1, 1'000'000'000});
    fields.choice({"routing", "how tokens spread over experts"}, batch.routing);
    fields.number({"routing_skew", "skewed: tokens of the most loaded rank over the mean"}, batch.routing_skew,
                  NumberRange{1, 1e5});
}

void describe_recompute(Fields& fields, types::Recompute& recompute) {
    fields.choice({"recompute_granularity", "what is recomputed"}, recompute.recompute_granularity);
    fields.choice({"recompute_method", "full: how layers are grouped"}, recompute.recompute_method);
    fields.optional_count({"recompute_num_layers", "full: layers of a group"}, recompute.recompute_num_layers,
                          IntegerRange{0, 100'000}, "null");
    fields.choices({"recompute_modules", "selective: which modules"}, recompute.recompute_modules);
}

void describe_cuda_graph(Fields& fields, types::CudaGraph& graph) {
    fields.choice({"cuda_graph_impl", "who captures"}, graph.cuda_graph_impl);
    fields.choices({"cuda_graph_modules", "what is captured; empty: the whole layer"}, graph.cuda_graph_modules);
    fields.count({"cuda_graph_warmup_steps", "eager steps before the capture"}, graph.cuda_graph_warmup_steps,
                 IntegerRange{0, 1'000'000});
}

void describe_offload_modules(Fields& fields, types::Offload& offload) {
    const auto set = [&](const std::vector<ScalarValue>& values) {
        offload.offload_modules = types::ModuleSet{};
        for (const ScalarValue& value : values) offload.offload_modules->insert(chosen<types::Module>(value));
    };
    fields.list({"offload_modules", "modules whose saved inputs move to the host; auto: the planner's choice"},
                ScalarKind{choice_kind<types::Module>()}, set, ScalarKind{ChoiceKind{{"auto"}}},
                [&](const ScalarValue& /*automatic*/) { offload.offload_modules.reset(); });
}

void describe_offload(Fields& fields, types::Offload& offload) {
    describe_offload_modules(fields, offload);
    const ScalarValue fraction =
        offload.activation_offload_fraction ? ScalarValue{*offload.activation_offload_fraction} : ScalarValue{};
    fields.scalar({"activation_offload_fraction", "share of the groups that move"}, ScalarKind{kAnyNumber, "auto"},
                  fraction, [&](const ScalarValue& read) {
                      offload.activation_offload_fraction.reset();
                      if (const auto* number = std::get_if<double>(&read))
                          offload.activation_offload_fraction = *number;
                  });
    fields.count({"min_offloaded_tensor_size", "elements, not bytes"}, offload.min_offloaded_tensor_size, kAnyWhole);
    fields.count({"delta_offload_bytes_across_pp_ranks", "bytes less to move, for each later pipeline rank"},
                 offload.delta_offload_bytes_across_pp_ranks, kAnyWhole);
    fields.optional_count({"fine_grained_offloading_max_inflight_offloads", "copies under way; null: no limit"},
                          offload.fine_grained_offloading_max_inflight_offloads, kAnyWhole, "null");
    fields.optional_flag({"delay_offload_until_cuda_graph", "copies wait for the next graph launch"},
                         offload.delay_offload_until_cuda_graph, "auto");
}

void describe_machines(Fields& fields, types::Hardware& hardware) {
    std::string stem = fields.reference({"node", "the machine: a hardware file, or its keys", true}, kHardwareFile,
                                        [&](Fields& inside) { describe_hardware(inside, hardware.node); });
    if (hardware.node.name.empty()) hardware.node.name = std::move(stem);
    std::int64_t nodes = hardware.nodes;
    fields.count({"nodes", "machines"}, nodes, kRanks);
    hardware.nodes = static_cast<int>(nodes);
}

void describe_limits(Fields& fields, types::Limits& limits) {
    fields.optional_size({"device_memory", "of one GPU; default: the hardware's"}, limits.device_memory);
    fields.optional_size({"host_memory_per_node", "default: the hardware's"}, limits.host_memory_per_node);
}

}  // namespace

void describe_scenario(Fields& fields, ScenarioDraft& draft) {
    types::Scenario& scenario = draft.scenario;
    fields.schema(kScenarioFile);
    fields.remark("source");
    fields.remark("sources");
    std::string stem = fields.reference({"model", "the transformer: a model file, or its keys", true}, kModelFile,
                                        [&](Fields& inside) { describe_model(inside, draft.model); });
    if (draft.model.model.name.empty()) draft.model.model.name = std::move(stem);
    fields.choice({"implementation", "whose layers run"}, scenario.implementation);
    fields.choice({"rules", "which Megatron-LM the configuration is for"}, scenario.rules);
    fields.text_map({"env", "environment variables of the job"}, scenario.env);
    fields.group({"parallel", "how the model is spread over GPUs"},
                 [&](Fields& inside) { describe_parallel(inside, draft); });
    fields.group({"batch", "tokens of a step", true}, [&](Fields& inside) { describe_batch(inside, scenario.batch); });
    fields.choice({"precision", "of the layers' arithmetic"}, scenario.precision);
    fields.group({"optimizer", "optimizer and its states"},
                 [&](Fields& inside) { describe_optimizer(inside, scenario.optimizer); });
    fields.group({"recompute", "activations computed again instead of kept"},
                 [&](Fields& inside) { describe_recompute(inside, scenario.recompute); });
    fields.group({"cuda_graph", "CUDA graphs"},
                 [&](Fields& inside) { describe_cuda_graph(inside, scenario.cuda_graph); });
    fields.group({"offload", "activations moved to the host"},
                 [&](Fields& inside) { describe_offload(inside, scenario.offload); });
    fields.group({"hardware", "the machines", true},
                 [&](Fields& inside) { describe_machines(inside, scenario.hardware); });
    fields.group({"limits", "memory the plan may use"},
                 [&](Fields& inside) { describe_limits(inside, scenario.limits); });
    fields.choice({"objective", "what to minimise"}, scenario.objective);
}

}  // namespace stowage::reader
