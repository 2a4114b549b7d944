#pragma once

#include <array>
#include <cstdint>
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

/// What the manager decided for one forward of one layer: one bit a module.
struct ForwardDecisions {
    types::ModuleSet offloaded;
    types::ModuleSet unmanaged;
    bool input_held = false;  ///< the schedule, or the checkpoint that the layer begins, keeps the layer's input
    Pass pass = Pass::normal;
    friend bool operator==(const ForwardDecisions&, const ForwardDecisions&) = default;
};

/// A group that the backward of another reloads or waits for.
struct ReloadTarget {
    std::uint16_t script = 0;
    types::Module module{};
    Scope scope = kFirstTarget;
    bool empty = false;  ///< its tensors were read inline before
    friend bool operator==(const ReloadTarget&, const ReloadTarget&) = default;
};

/// What it decided for the backward of that layer.
struct BackwardDecisions {
    types::ModuleSet inline_read;  ///< the tensors are read inline on the main stream
    /// By module of this layer: the group whose reload the main stream waits for, mostly the module's own.
    std::array<std::optional<ReloadTarget>, types::kModuleCount> waits;
    /// By module of this layer: the group that is prefetched at its end.
    std::array<std::optional<ReloadTarget>, types::kModuleCount> targets;
};

/// A text that equals another's exactly when the decisions do; bodies are shared by it.
std::string body_key(std::size_t script, const ForwardDecisions& forward, const BackwardDecisions* backward);

/// Turns scripts and decisions into bodies of operations: references are counted, so that what is allocated and freed,
/// and when, follows from who still holds a tensor. One builder serves one rank under one choice. Throws:
/// std::logic_error if a script uses a tensor that is gone or leaves one allocated (a bug of the script).
class BodyBuilder {
public:
    BodyBuilder(const layers::StageLayers& stage, const std::vector<FrameLayout>& layouts, const Durations& durations,
                StepProgram& program);

    Body forward(std::size_t script, const ForwardDecisions& decisions);
    /// The same operations in the pieces that run beside another chunk's.
    BodySegments forward_segments(std::size_t script, const ForwardDecisions& decisions);
    BodySegments backward_segments(std::size_t script, const ForwardDecisions& forward_decisions,
                                   const BackwardDecisions& decisions);
    Body backward(std::size_t script, const ForwardDecisions& forward_decisions, const BackwardDecisions& decisions);
    /// Whether a forward under these decisions empties the layer's input.
    [[nodiscard]] bool releases_input(std::size_t script, const ForwardDecisions& decisions) const;
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
    };
    enum class TransferCall : std::uint8_t { grouped_and_synchronised, grouped, post, await };
    Body transfers(const std::vector<TransferPart>& parts, TransferCall call);
    /// Frees kInput of scope 0 if `first`, and kInput of scope 1 if `second`.
    Body free_inputs(std::string_view name, bool first, bool second);
    /// Launches the collective of a bucket of gradients or parameters; nothing waits for it yet.
    Body bucket(const layers::LayerScript& script);
    /// The main stream waits for every bucket launched so far.
    Body await_buckets();
    /// Frees what lives between steps only.
    Body begin_step();

    /// Whether a forced release emptied a tensor that a group kept on the device still needs (Megatron would fail in
    /// backward).
    [[nodiscard]] bool released_while_saved() const { return released_while_saved_; }

    [[nodiscard]] const layers::StageLayers& stage() const { return stage_; }
    [[nodiscard]] const FrameLayout& layout(std::size_t script) const { return layouts_[script]; }
    [[nodiscard]] const Durations& durations() const { return durations_; }
    /// Numbers of texts and of pinned pool keys in the program; the same text or key gets the same number.
    std::uint32_t label(std::string_view text);
    std::uint32_t pinned_key(Bytes bytes, types::DataType type);

private:
    Body write_forward(std::size_t script, const ForwardDecisions& decisions, std::vector<OperationRange>& exchanges);
    Body write_backward(std::size_t script, const ForwardDecisions& forward_decisions,
                        const BackwardDecisions& decisions, std::vector<OperationRange>& exchanges);
    void issue(const std::vector<TransferPart>& parts, Body& body);
    void await(const std::vector<TransferPart>& parts, Body& body, bool synchronise) const;

    const layers::StageLayers& stage_;
    const std::vector<FrameLayout>& layouts_;
    FrameLayout optimizer_layout_;
    const Durations& durations_;
    StepProgram& program_;
    std::unordered_map<std::string, std::uint32_t> label_numbers_;
    std::unordered_map<std::uint64_t, std::uint32_t> pinned_numbers_;
    bool released_while_saved_ = false;
};

}  // namespace stowage::program
