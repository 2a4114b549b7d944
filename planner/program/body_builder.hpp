#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/program/body_segments.hpp"
#include "planner/program/durations.hpp"
#include "planner/program/frame_layout.hpp"
#include "planner/program/step_program.hpp"

namespace stowage::program {

/// How often a layer's forward runs: once, or first without saving anything and a second time before the backward.
enum class Pass : std::uint8_t { normal, discarding, recomputing };

/// Which steps of a layer a body holds. `outside` launches the layer's graph where its captured steps are.
enum class Side : std::uint8_t { all, captured, outside };

/// A group that the backward of another reloads or waits for.
struct ReloadTarget {
    std::uint16_t script = 0;
    types::Module module{};
    Scope scope = kFirstTarget;
    bool empty = false;  ///< its tensors were read inline before
    friend bool operator==(const ReloadTarget&, const ReloadTarget&) = default;
};
using ReloadTargets = std::array<std::optional<ReloadTarget>, types::kModuleCount>;

/// What the manager decided for one forward of one layer: one bit a module.
struct ForwardDecisions {
    types::ModuleSet offloaded;
    types::ModuleSet unmanaged;
    types::ModuleSet delayed;        ///< committed behind the layer, in a body of their own
    types::ModuleSet not_committed;  ///< the same while their commits are still to come
    ReloadTargets joins;             ///< by module of this layer: the group whose copy the main stream waits for
    bool input_held = false;         ///< the schedule, or the checkpoint that the layer begins, keeps the layer's input
    bool input_static = false;       ///< the layer's input is memory of the graph before it
    bool gradient_static = false;    ///< the gradient of its output is memory of the graph behind it
    Pass pass = Pass::normal;
    Side side = Side::all;
};

/// What policy `stowage` does at one hook of a backward: the main stream waits for the copies of the joined groups,
/// then the others are reloaded.
struct PlannedHook {
    layers::StepKind kind{};
    types::Module module{};
    std::vector<ReloadTarget> joins;
    std::vector<ReloadTarget> reloads;
};

/// What it decided for the backward of that layer.
struct BackwardDecisions {
    types::ModuleSet inline_read;  ///< the tensors are read inline on the main stream
    /// By module of this layer: the group whose reload the main stream waits for, mostly the module's own.
    ReloadTargets waits;
    /// By module of this layer: the group that is prefetched at its end.
    ReloadTargets targets;
    std::vector<PlannedHook> planned;  ///< policy `stowage`; its waits are at the first read of the module
    /// Captured: the gradient that the graph captured before it handed on goes now.
    bool frees_previous_gradient = false;
};

/// Scopes of a body that captures a backward: whose kInput the layer's output is, and whose kGradOutput the graph
/// captured before it made. Reload targets follow.
inline constexpr Scope kOutputFrame = kFirstTarget;
inline constexpr Scope kPreviousGradientFrame = kFirstTarget + 1;

/// What is copied into a graph's own buffers when it is launched.
struct GraphSurface {
    std::vector<Bytes> inputs;     ///< of the forward
    std::vector<Bytes> gradients;  ///< of the backward: of the forward's outputs
};

/// A text that equals another's exactly when the decisions do; bodies are shared by it.
std::string body_key(std::size_t script, const ForwardDecisions& forward, const BackwardDecisions* backward);
/// A small number that says the same, if the manager decided nothing.
std::optional<std::size_t> plain_body_number(std::size_t script, const ForwardDecisions& forward,
                                             const BackwardDecisions* backward);

/// Turns scripts and decisions into bodies of operations: references are counted, so that what is allocated and freed,
/// and when, follows from who still holds a tensor. One builder serves one rank under one choice. Throws:
/// std::logic_error if a script uses a tensor that is gone or leaves one allocated (a bug of the script).
class BodyBuilder {
public:
    BodyBuilder(const layers::StageLayers& stage, const std::vector<FrameLayout>& layouts,
                const types::OffloadChoice& choice, const Durations& durations, StepProgram& program);

    Body forward(std::size_t script, const ForwardDecisions& decisions);
    /// The same operations in the pieces that run beside another chunk's.
    BodySegments forward_segments(std::size_t script, const ForwardDecisions& decisions);
    BodySegments backward_segments(std::size_t script, const ForwardDecisions& forward_decisions,
                                   const BackwardDecisions& decisions);
    Body backward(std::size_t script, const ForwardDecisions& forward_decisions, const BackwardDecisions& decisions);
    /// A forward outside its graph in two bodies: up to the launch of the graph and the wait for it, and the rest.
    std::array<Body, 2> forward_around_graph(std::size_t script, const ForwardDecisions& decisions);
    /// The commits of the delayed groups; `decisions.offloaded` says which of them leave.
    Body delayed_commits(std::size_t script, const ForwardDecisions& decisions);
    /// What the layer's graphs are given at each launch.
    GraphSurface graph_surface(std::size_t script);
    [[nodiscard]] const layers::LayerGraphs* graphs_of(std::size_t script) const;
    /// Whether the layer's graph holds offload groups, joins their copies and runs on the manager's stream.
    [[nodiscard]] bool plants_hooks(std::size_t script) const;
    /// Whether the layer's output, or the gradient of its input, is memory of its graph.
    [[nodiscard]] bool captures_output(std::size_t script) const;
    [[nodiscard]] bool captures_gradient(std::size_t script) const;
    /// Whether a forward under these decisions empties the layer's input.
    [[nodiscard]] bool releases_input(std::size_t script, const ForwardDecisions& decisions);
    /// The step after the last backward; `first` also allocates what the first optimizer step creates in the persistent
    /// frame.
    Body optimizer(bool first);
    /// Allocates what the rank holds from the start.
    Body setup();
    /// Transfers with neighbours. The i-th one's tensor lies in the frame of scope 2 i; a sent tensor is freed once the
    /// main stream has waited for it. `release_input`: the schedule then also lets go of the input in the frame of
    /// scope 2 i + 1.
    struct TransferPart {
        TransferKind kind{};
        bool release_input = false;
        bool is_static = false;  ///< sent memory belongs to a graph: it is not freed
    };
    enum class TransferCall : std::uint8_t { grouped_and_synchronised, grouped, post, await };
    Body transfers(const std::vector<TransferPart>& parts, TransferCall call);
    /// Frees kInput of scope 0 if `first`, and kInput of scope 1 if `second`.
    Body free_inputs(std::string_view name, bool first, bool second);
    /// Launches the collective of a bucket of gradients or parameters; nothing waits for it yet.
    Body bucket(const layers::LayerScript& script);
    /// The main stream waits for every bucket launched so far.
    Body await_buckets();
    /// Frees what lives between steps only, which the first step has none of, and makes what lives within them.
    Body begin_step(bool first);

    /// Whether a forced release emptied a tensor that a group kept on the device still needs (Megatron would fail in
    /// backward).
    [[nodiscard]] bool released_while_saved() const { return released_while_saved_; }
    /// Whether a forced release empties the output or input buffer of a graph (Megatron stops with an error, H4).
    [[nodiscard]] bool released_static() const { return released_static_; }

    [[nodiscard]] const layers::StageLayers& stage() const { return stage_; }
    [[nodiscard]] const FrameLayout& layout(std::size_t script) const { return layouts_[script]; }
    [[nodiscard]] const Durations& durations() const { return durations_; }
    /// Whether the policy is `stowage`: hooks do only what was decided.
    [[nodiscard]] bool planned() const { return planned_; }
    /// Numbers of texts and of pinned pool keys in the program; the same text or key gets the same number.
    std::uint32_t label(std::string_view text);
    std::uint32_t pinned_key(const std::vector<std::int64_t>& shape, types::DataType type);
    /// Its number in the program; equal work gets the same number.
    std::uint32_t work(Work work);

private:
    using When = layers::StateBuffer::When;
    void free_states(When when, Scope scope, class BodyWriter& writer) const;
    Body write_forward(std::size_t script, const ForwardDecisions& decisions, std::vector<OperationRange>& exchanges);
    Body write_backward(std::size_t script, const ForwardDecisions& forward_decisions,
                        const BackwardDecisions& decisions, std::vector<OperationRange>& exchanges);
    [[nodiscard]] class BodyWriter writer_of(std::size_t script, Side side);
    [[nodiscard]] std::string forward_name(std::size_t script, const ForwardDecisions& decisions) const;
    void note(const class BodyWriter& writer);
    std::uint32_t arrival(TransferKind kind, Scope scope);
    void issue(const std::vector<TransferPart>& parts, Body& body);
    void await(const std::vector<TransferPart>& parts, Body& body, bool synchronise) const;

    const layers::StageLayers& stage_;
    const std::vector<FrameLayout>& layouts_;
    types::ModuleSet chosen_;
    bool planned_;
    FrameLayout optimizer_layout_;
    const Durations& durations_;
    StepProgram& program_;
    std::unordered_map<std::string, std::uint32_t> label_numbers_;
    std::map<std::pair<std::vector<std::int64_t>, types::DataType>, std::uint32_t> pinned_numbers_;
    std::unordered_multimap<std::size_t, std::uint32_t> work_numbers_;  ///< by hash_of
    bool released_while_saved_ = false;
    bool released_static_ = false;
};

}  // namespace stowage::program
