#pragma once

// A layer, as the host issues it.
//
// A script says what one layer of one implementation does for one microbatch: which tensors it makes and drops, which
// kernels and collectives it launches, what autograd saves for the backward, and where Megatron's offload hooks sit. It
// is data: the same script is lowered to a program, counted for FLOPs, and listed as tensor groups; no second
// description of a layer exists.
//
// Tensors live by reference, as in PyTorch. `allocate` makes a storage held by one variable; `drop` ends that variable;
// `save` adds autograd's reference and `forget` ends it. The storage is freed when the last reference goes. When a
// group is offloaded its saves lose their reference at the commit; the tensors in `release` are emptied there whoever
// else holds them.
//
// Worked example, a linear layer y = x W inside module m:
//     forward:   start m | save x in m | allocate y | kernel gemm | commit m | drop x
//     backward:  commit m | allocate dx | read x | kernel dgrad, wgrad | forget x | start m | drop dy
// Backward hooks run in the reverse order of the forward's: `commit` waits for the reload, `start` prefetches the next
// group.
//
// Tested by: tests/planner/layers/, tests/planner/program/.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/layers/kernel_call.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/data_type.hpp"
#include "scenarios/types/enum_names.hpp"
#include "scenarios/types/hardware.hpp"
#include "scenarios/types/module.hpp"
#include "scenarios/types/scenario.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::layers {

using types::Bytes;
using types::DataType;
using types::KernelClass;
using types::Module;
using types::Nanoseconds;

/// A tensor's place among the tensors of its frame (one layer of one chunk).
enum class Slot : std::uint16_t {};
constexpr std::size_t index(Slot slot) { return static_cast<std::size_t>(slot); }
/// The layer's input: made by the layer before it (or received), as that layer's output.
inline constexpr Slot kInput{0};
/// The gradient of the layer's output: made by the layer after it (or received).
inline constexpr Slot kGradOutput{1};
/// What this layer makes for its neighbours: the next frame's input, the previous frame's output gradient.
inline constexpr Slot kOutput{0xFFFE};
inline constexpr Slot kGradInput{0xFFFF};

/// One storage of the layer. Shape is elements per dimension as Megatron has it, this rank's shard.
struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    DataType type = DataType::bf16;
    bool persistent = false;  ///< held by the module (a weight): saving it costs nothing and releasing cannot free it
    bool parameter = false;   ///< recognised as a parameter when saved: the offload hooks let it pass

    [[nodiscard]] std::int64_t elements() const;
    [[nodiscard]] Bytes bytes() const;
};

/// How the manager moves a saved tensor.
enum class CopyForm : std::uint8_t {
    contiguous,  ///< straight from the storage
    gathered,    ///< a strided view: a contiguous temporary on the copy stream first
};

/// One entry of autograd's saved tensors: a tensor, or a view of it, held for one backward.
struct SavedTensor {
    std::string name;
    Slot tensor{};
    std::optional<Module> group;  ///< the offload group whose hook is active at the save; none: never offloaded
    std::vector<std::int64_t> shape;
    DataType type = DataType::bf16;
    CopyForm form = CopyForm::contiguous;

    [[nodiscard]] std::int64_t elements() const;
    [[nodiscard]] Bytes bytes() const;
};
enum class SavedIndex : std::uint16_t {};
constexpr std::size_t index(SavedIndex saved) { return static_cast<std::size_t>(saved); }

/// The part of the model an operation belongs to; modules of `--offload-modules` keep their names.
enum class Part : std::uint8_t {
    embedding,
    attn_norm,
    qkv_linear,
    rotary,
    core_attn,
    attn_proj,
    residual,
    mlp_norm,
    mlp_fc1,
    mlp_act,
    mlp_fc2,
    router,
    dispatch,
    expert_fc1,
    moe_act,
    expert_fc2,
    combine,
    shared_expert,
    latent,
    final_norm,
    output_layer,
    loss,
    optimizer,
    gradients,
    pipeline,
    offload,
    graph,
    mtp,
    mixer_in_proj,
    mixer_conv,
    mixer_scan,
    mixer_norm,
    mixer_out_proj,
};
std::string_view name_of(Part part);

enum class Phase : std::uint8_t { forward, backward, weight_gradient, recompute, optimizer };
std::string_view name_of(Phase phase);

/// How an attention kernel's work is spread.
struct AttentionWork {
    double rows = 0;       ///< of the score matrices: batch x heads x queries; 0: not known
    double keys = 0;       ///< that a row sees, on average
    double longest = 0;    ///< that the row sees which sees most
    double head_size = 0;  ///< mean of query's and value's
    Bytes between = {};    ///< written by one kernel and read by the next one of the same call, both counted
    friend bool operator==(const AttentionWork&, const AttentionWork&) = default;
};

/// Where a kernel's duration comes from, from the surest on.
enum class DurationSource : std::uint8_t {
    measured,   ///< a recording has the same work
    recompute,  ///< runs again what a recording has as a forward
    scaled,     ///< a recording has this operation in another size or on another device
    estimated,  ///< from the hardware file
};
inline constexpr std::size_t kDurationSources = 4;

/// One kernel or library call on the main stream.
/// `flops` counts multiply and add as two; `traffic` is bytes read plus bytes written, each operand once.
struct Kernel {
    std::string name;
    KernelClass kind = KernelClass::memory_bound;
    double flops = 0;
    Bytes traffic;
    bool fp8 = false;                     ///< a GEMM on FP8 operands
    std::optional<Nanoseconds> measured;  ///< given: used as it is instead of the estimate, its start included
    bool block_scaled = false;            ///< fp8: every block of an operand has its own scale, applied in fp32
    Bytes result = {};                    ///< GEMM: its result's part of `traffic`, moved when the sums are complete
    std::int64_t count = 1;               ///< GEMM: so many equal ones, one after another (experts)
    std::int64_t launches = 1;            ///< places that it takes in a stream's launch queue
    AttentionWork attention = {};
    KernelCall call = {};  ///< what it computes, where stowage's own layers run it
    DurationSource source = DurationSource::estimated;
    std::optional<double> error = std::nullopt;  ///< of the duration, as a share of it, where a recording tells
};

/// `exchange`: each rank sends to its neighbour in the group and receives from the other one.
enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, exchange };
/// The ranks a collective runs over.
enum class CommGroup : std::uint8_t {
    tensor,
    context,
    expert,
    expert_tensor,
    expert_and_tensor,  ///< the ranks of both: every rank that shares the experts of a layer
    dense_replicas,
    expert_replicas,
    embedding
};
/// `bytes`: the whole tensor for all_reduce, the gathered (full) tensor for all_gather and reduce_scatter, what one
/// rank sends in all (itself included) for all_to_all, what it sends for exchange.
struct Collective {
    std::string name;
    CollectiveKind kind = CollectiveKind::all_reduce;
    CommGroup group = CommGroup::tensor;
    Bytes bytes;
    bool blocks_main = true;    ///< the main stream waits for it at once; otherwise until `join_collectives`
    std::int64_t parts = 1;     ///< the group is cut into so many runs of neighbours, and each runs it by itself
    bool across_parts = false;  ///< instead: among the ranks that have the same place in every part
    /// all_to_all of the flex dispatcher: `bytes` are copies of tokens, each for `copies` of `places` that lie spread
    /// evenly over the ranks. A token crosses once to each node and once to each rank there. 0: every copy crosses.
    std::int64_t copies = 0;
    std::int64_t places = 0;
    KernelCall call = {};  ///< what runs in place of it, as long as it takes, where its result has to be made up
};

/// Whether it carries tokens to experts of other ranks, or back.
inline bool is_token_exchange(const Collective& collective) {
    return collective.kind == CollectiveKind::all_to_all &&
           (collective.group == CommGroup::expert || collective.group == CommGroup::expert_and_tensor);
}

enum class StepKind : std::uint8_t {
    allocate,          ///< slot
    drop,              ///< slot: the variable goes
    kernel,            ///< detail: index into kernels
    collective,        ///< detail: index into collectives
    join_collectives,  ///< the main stream waits for every collective so far
    host_sync,  ///< the host waits until the main stream has done all so far and has copied `detail` bytes to the host,
                ///< if there are any
    start,      ///< module: a group opens (forward), or its last backward act (backward)
    commit,     ///< module: a group closes (forward; `detail` indexes releases), or its first backward act (backward)
    save,       ///< saved
    read,       ///< saved: the backward needs it on the device
    forget,     ///< saved: autograd's reference goes
};

struct Step {
    StepKind kind{};
    Part part{};
    Phase phase{};
    Module module{};
    Slot slot{};
    SavedIndex saved{};
    std::uint32_t detail = 0;
};

enum class ParameterKind : std::uint8_t { dense, expert };

/// One parameter tensor of this rank. Elements are this rank's shard.
struct Parameter {
    std::string name;
    std::vector<std::int64_t> shape;
    ParameterKind kind = ParameterKind::dense;
    /// Elements of this tensor over all tensor- and expert-parallel ranks, each element counted once, before vocabulary
    /// padding: what a model's published parameter count adds up. 0 for a copy of a parameter that lives elsewhere.
    std::int64_t model_elements = 0;
    bool shared = false;    ///< lies where the parameter of this name of an earlier script lies: the rank has it once
    bool fp8_copy = false;  ///< implementation stowage: an FP8 copy of it stands beside it, see Fp8Place

    [[nodiscard]] std::int64_t elements() const;
};

/// Where a graph of a part of a layer may begin and end. In a forward the place behind the part, in a backward the
/// place in front of the part's backward.
/// `begin` and `end` are of a transformer layer inside another script; elsewhere they are the script's own.
enum class GraphEdge : std::uint8_t { begin, mixer, router, preprocess, end };
inline constexpr std::size_t kGraphEdges = 5;
inline constexpr std::size_t kNoEdge = SIZE_MAX;
/// Numbers of steps, by GraphEdge; kNoEdge where the layer lacks the part.
using GraphEdges = std::array<std::size_t, kGraphEdges>;
inline constexpr GraphEdges kNoEdges{kNoEdge, kNoEdge, kNoEdge, kNoEdge, kNoEdge};
/// The steps of a script that a graph captures.
struct StepRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] bool contains(std::size_t step) const { return begin <= step && step < end; }
    friend bool operator==(const StepRange&, const StepRange&) = default;
};

/// What a script stands for.
enum class ScriptKind : std::uint8_t { embedding, dense_layer, moe_layer, head, optimizer, mtp };

/// One layer of one implementation, forward and backward. Built by ScriptBuilder.
struct LayerScript {
    ScriptKind kind{};
    std::string name;
    std::vector<Tensor> tensors;  ///< indexed by Slot; 0 and 1 are kInput and kGradOutput
    std::vector<SavedTensor> saved;
    std::vector<Kernel> kernels;
    std::vector<Collective> collectives;
    std::vector<std::vector<Slot>> releases;  ///< per forward commit: the tensors emptied when the group is offloaded
    std::vector<Step> forward;
    std::vector<Step> backward;
    GraphEdges forward_edges = kNoEdges;
    GraphEdges backward_edges = kNoEdges;
    Slot graph_input = kInput;  ///< input and output gradient of the transformer layer that graphs are captured of
    Slot graph_gradient = kGradOutput;
    std::vector<Parameter> parameters;
};

/// What `save` does while the steps of a module are written; see ScriptBuilder::saving.
enum class Saving : std::uint8_t {
    autograd,  ///< the tensor is saved for the backward
    nothing,   ///< forward inside a checkpoint: nothing is saved, no offload group opens
    rebuild,   ///< forward again inside the backward, and what follows from it
};

/// Writes a script step by step. `part` and `phase` apply to all steps until changed.
class ScriptBuilder {
public:
    ScriptBuilder(ScriptKind kind, std::string name);

    /// Declares a storage; it exists once `allocate` has run.
    Slot tensor(std::string name, std::vector<std::int64_t> shape, DataType type = DataType::bf16);
    /// Declares a storage that somebody else holds and that does not look like a parameter when saved: an input the
    /// caller keeps, a weight that reaches the hooks detached (plain torch.nn.Linear). Moving it frees nothing.
    Slot held(std::string name, std::vector<std::int64_t> shape, DataType type = DataType::bf16);
    /// Declares a storage that the module holds (a weight), saved as the parameter it is.
    Slot persistent(std::string name, std::vector<std::int64_t> shape, DataType type = DataType::bf16);
    /// Sets the shapes of kInput and kGradOutput.
    void boundary(std::vector<std::int64_t> input_shape, std::vector<std::int64_t> output_shape, DataType type);
    /// Returns its number among the script's.
    std::size_t parameter(Parameter parameter);

    void begin_forward(Part part);
    void begin_backward(Part part);
    void part(Part part) { part_ = part; }
    /// Graphs are captured of a layer between these tensors.
    void graph_ends(Slot input, Slot gradient);
    /// Notes the place; inside a checkpoint it is none, since a checkpoint is captured whole or not at all.
    void edge(GraphEdge edge);
    [[nodiscard]] Part current_part() const { return part_; }
    void phase(Phase phase) { phase_ = phase; }
    /// Sets what `save` does from here on and returns what it did.
    ///
    /// A checkpoint is written with the same functions as the module it surrounds: the module's forward under
    /// `nothing`; in the backward, under `rebuild`, the module's forward again and then its backward. Under `rebuild`
    /// a save is one more reference to a tensor of the second forward, kept until `forget`; a save of a tensor that
    /// was made outside costs nothing, whoever wrote it holds it. Starts and commits are left out under both.
    Saving saving(Saving saving);
    /// From here on a save of `slot` costs nothing. For tensors that their maker drops when the forwards of their
    /// consumers are over and makes again before the consumers' backwards (Megatron's CheckpointWithoutOutput).
    void discards(Slot slot) { discarded_.push_back(slot); }

    void allocate(Slot slot);
    void drop(Slot slot);
    void kernel(Kernel kernel);
    void collective(Collective collective);
    void join_collectives();
    /// With what the host waits for, where that comes by a copy.
    void host_sync(Bytes copied = {});
    void start(Module module);
    void commit(Module module, std::vector<Slot> release = {});
    /// Saves the whole tensor.
    SavedIndex save(Slot slot, std::optional<Module> group = std::nullopt);
    /// Saves a view of it.
    SavedIndex save_view(std::string name, Slot slot, std::optional<Module> group, std::vector<std::int64_t> shape,
                         CopyForm form);
    void read(SavedIndex saved);
    void forget(SavedIndex saved);
    /// The saved tensor as a kernel's operand; between `read` and `forget`.
    [[nodiscard]] CallOperand operand(SavedIndex saved) const;

    /// Throws: std::logic_error if a save is never forgotten, a group is opened and not closed, or closed twice.
    LayerScript build();

private:
    void step(Step step);
    int& rebuilt(Slot slot);

    LayerScript script_;
    std::vector<Step>* steps_;
    Part part_{};
    Phase phase_{};
    Saving saving_ = Saving::autograd;
    std::vector<int> rebuilt_;  ///< per slot: references to a tensor made under `rebuild`
    std::vector<Slot> discarded_;
    std::vector<Slot> rebuilt_saves_;  ///< the tensors of the saves made under `rebuild`
};

/// Sets what `save` does for as long as it lives.
class SavingScope {
public:
    SavingScope(ScriptBuilder& script, Saving saving) : script_(script), before_(script.saving(saving)) {}
    ~SavingScope() { script_.saving(before_); }
    SavingScope(const SavingScope&) = delete;
    SavingScope& operator=(const SavingScope&) = delete;
    SavingScope(SavingScope&&) = delete;
    SavingScope& operator=(SavingScope&&) = delete;

private:
    ScriptBuilder& script_;
    Saving before_;
};

/// One persistent allocation of a rank: parameters, gradients, optimizer states, workspaces; on the device unless
/// `what` says that it is host memory.
struct StateBuffer {
    /// construction: there while the rank's other states of set-up are made, gone before its optimizer's.
    /// between_steps: made by each optimizer step, gone when the next step starts.
    /// within_steps: the other way round, there from the start of each step until its optimizer.
    enum class When : std::uint8_t { setup, first_optimizer_step, between_steps, construction, within_steps };
    enum class What : std::uint8_t { weights, gradients, optimizer, workspace, pinned_host, pageable_host };
    std::string name;
    Bytes bytes;
    What what = What::weights;
    When when = When::setup;
    std::optional<StowageState> role = std::nullopt;  ///< what calls name it

    [[nodiscard]] bool on_host() const { return what == What::pinned_host || what == What::pageable_host; }
};

/// Frames `first` to `last` of a chunk, whose forward keeps only the first one's input and whose backward first runs
/// their forwards again (`--recompute-granularity full`).
struct RecomputedSpan {
    std::size_t first = 0;
    std::size_t last = 0;
};

/// A bucket of a virtual stage's gradients or parameters whose collective runs beside compute.
struct OverlappedBucket {
    std::size_t frame =
        0;               ///< gradients: complete after this frame's backward; parameters: needed by its forward first
    LayerScript script;  ///< `forward`: what is launched; nothing waits in it
};

/// The graphs of one layer: which steps of its script they capture.
struct LayerGraphs {
    StepRange forward;
    StepRange backward;
    bool takes_input = true;     ///< the forward's graph begins with the layer
    bool takes_gradient = true;  ///< the backward's begins with the layer's backward
    bool hooks = false;          ///< may hold offload groups, whose copies leave through the manager's hooks (rule D7)
};

/// How the stage runs under CUDA graphs.
struct StageGraphs {
    types::CudaGraphImpl impl = types::CudaGraphImpl::none;
    std::int64_t warmup_steps = 3;  ///< iterations before the capture
    Bytes attention_mask;           ///< static input beside the hidden states of a graph with attention in it
    std::vector<std::optional<LayerGraphs>> layers;  ///< by script; empty unless graphs are captured layer by layer
};

/// The layers of one virtual stage: what one microbatch passes through without leaving the rank.
struct ChunkLayers {
    std::vector<std::size_t> order;            ///< the script of each frame, in forward order
    std::vector<std::int64_t> layer_numbers;   ///< per frame: number of the transformer layer, -1 for other frames
    std::vector<RecomputedSpan> recomputed;    ///< rising, without overlap
    std::vector<OverlappedBucket> reductions;  ///< falling frames: beside the last microbatch's backward
    std::vector<OverlappedBucket> gathers;     ///< rising frames: beside the first microbatch's forward
};

/// All that one pipeline rank runs and holds.
struct StageLayers {
    std::int64_t pipeline_rank = 0;
    std::int64_t pipeline_size = 1;
    std::int64_t microbatch_group = 1;  ///< microbatches that an interleaved schedule runs through one virtual stage
    bool overlapped_transfers = true;   ///< interleaved: transfers run beside compute
    bool paired_chunks = false;         ///< the forward of one chunk runs beside the backward of another, so that each
                                        ///< computes while the other's tokens are under way
    bool delayed_weight_gradients = false;  ///< paired: weight gradients run while the other chunk's tokens travel
    std::vector<LayerScript> scripts;
    std::vector<ChunkLayers> chunks;  ///< by virtual stage
    StageGraphs graphs;
    std::vector<types::ModuleSet> downgraded;  ///< by script: offload modules that the listed graphs switch off (rules
                                               ///< D1 to D3); empty: none
    LayerScript optimizer;                     ///< `forward` holds the step after the last backward
    std::vector<StateBuffer> states;
    Bytes boundary;          ///< one hidden-state tensor between stages
    bool stand_ins = false;  ///< every kernel is a stand-in, see program/stand_ins.hpp
    /// Implementation stowage: where each parameter lies in the state of all parameters, in elements, by virtual stage,
    /// frame and number among the script's; gradients lie alike.
    std::vector<std::vector<std::vector<std::int64_t>>> parameter_places;
    /// Alike, of those with FP8 copies; empty if there are none.
    std::vector<std::vector<std::vector<Fp8Place>>> fp8_places;
    /// By script: what runs before the layer's forward of a step's first microbatch, on the layer's own parameters
    /// (`forward`; FP8 copies of weights). Empty if there is nothing.
    std::vector<std::optional<LayerScript>> preparations;
};

}  // namespace stowage::layers

template <>
struct stowage::types::EnumNames<stowage::layers::DurationSource> {
    using Source = stowage::layers::DurationSource;
    static constexpr std::array<std::pair<Source, std::string_view>, stowage::layers::kDurationSources> values{
        {{Source::measured, "measured"},
         {Source::recompute, "recompute"},
         {Source::scaled, "scaled"},
         {Source::estimated, "estimated"}}};
};
