#pragma once

// Lowers one rank: walks its schedule for each stage of a run, asks the manager at every hook, and adds an instance of
// the body that the answers call for. Used by lower() only; its parts lie in stage_lowering*.cpp:
//
//     stage_lowering.cpp         frames, bodies and instances; the stages of a run; what a schedule entry does
//     stage_lowering_layers.cpp  forward and backward of a layer, and what the manager decides there
//     stage_lowering_paired.cpp  two chunks layer by layer beside each other
//     stage_lowering_graphs.cpp  the capture, and layers around their graphs

#include <array>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/program/body_builder.hpp"
#include "planner/program/bucket_schedule.hpp"
#include "planner/program/frames.hpp"
#include "planner/program/graph_surfaces.hpp"
#include "planner/program/lowering.hpp"
#include "planner/program/offload_hooks.hpp"
#include "planner/program/schedule.hpp"
#include "planner/program/stowage_manager.hpp"

namespace stowage::program {

class StageLowering {
public:
    StageLowering(const layers::StageLayers& stage, std::int64_t microbatches, const types::OffloadChoice& choice,
                  types::RuleSet rules, const Durations& durations);

    Lowered run();

private:
    using SegmentBodies = std::array<std::optional<BodyId>, kSegmentCount>;

    // structure
    [[nodiscard]] const layers::ChunkLayers& layers_of(Chunk chunk) const {
        return stage_.chunks[static_cast<std::size_t>(chunk.virtual_stage)];
    }
    [[nodiscard]] std::size_t positions(Chunk chunk) const { return layers_of(chunk).order.size(); }
    [[nodiscard]] std::size_t script_at(Chunk chunk, std::size_t position) const {
        return layers_of(chunk).order[position];
    }
    [[nodiscard]] std::int64_t layer_number(Chunk chunk, std::size_t position) const {
        return layers_of(chunk).layer_numbers[position];
    }
    /// Whether the chunk's input comes from a neighbour.
    [[nodiscard]] bool receives(Chunk chunk) const { return stage_.pipeline_rank > 0 || chunk.virtual_stage > 0; }
    [[nodiscard]] bool interleaved() const { return shape_.virtual_stages > 1; }
    /// The manager's number of a chunk is its place among the forwards.
    [[nodiscard]] std::uint32_t number_of(Chunk chunk) const {
        return numbers_[static_cast<std::size_t>(chunk.virtual_stage * shape_.microbatches + chunk.microbatch)];
    }
    [[nodiscard]] std::uint32_t group_number(Chunk chunk, std::size_t position, types::Module module) const;
    [[nodiscard]] const layers::RecomputedSpan* span_at(Chunk chunk, std::size_t position) const;
    /// The frame that takes a layer's output: the next layer's, or what leaves to the neighbour.
    [[nodiscard]] std::uint32_t frame_after(Chunk chunk, std::size_t position) const;
    /// The frame that takes the gradient of a layer's input.
    [[nodiscard]] std::uint32_t frame_before(Chunk chunk, std::size_t position) const;
    std::vector<std::shared_ptr<const ChunkGroups>> chunk_groups();
    std::unique_ptr<OffloadManager> make_manager(types::RuleSet rules);
    [[nodiscard]] std::shared_ptr<const StageGroups> planned_groups(std::size_t virtual_stage) const;
    void place_frames();
    void place_parameters();

    // instances
    template <class Make>
    BodyId body(const std::string& key, Make&& make) {
        const auto [entry, added] = bodies_.try_emplace(key, static_cast<BodyId>(result_.program.bodies.size()));
        if (added) result_.program.bodies.push_back(make());
        return entry->second;
    }
    template <class Make>
    SegmentBodies segment_bodies(const std::string& key, Make&& make) {
        const auto [entry, added] = segments_.try_emplace(key);
        if (!added) return entry->second;
        auto made = make();
        for (std::size_t i = 0; i < made.size(); ++i) {
            if (made[i].operations.empty()) continue;
            entry->second[i] = static_cast<BodyId>(result_.program.bodies.size());
            result_.program.bodies.push_back(std::move(made[i]));
        }
        return entry->second;
    }
    template <class Frames>
    void add_instance(BodyId body, std::int64_t microbatch, std::int64_t layer, const Frames& scopes) {
        StepProgram& program = result_.program;
        program.sequence[static_cast<std::size_t>(stage_of_run_)].push_back(
            {body, static_cast<std::int32_t>(microbatch), static_cast<std::int32_t>(layer),
             static_cast<std::uint32_t>(program.scope_frames.size()), graph_});
        program.scope_frames.insert(program.scope_frames.end(), std::begin(scopes), std::end(scopes));
    }
    void add_instance(BodyId body, std::int64_t microbatch, std::int64_t layer,
                      std::initializer_list<std::uint32_t> scopes) {
        add_instance<std::initializer_list<std::uint32_t>>(body, microbatch, layer, scopes);
    }

    /// An instance in a layer's frame and its neighbour's; the targets follow.
    void add_layer_instance(BodyId body, Chunk chunk, std::size_t position, std::uint32_t neighbour);
    /// The body that most layers of most chunks run, those that the manager has nothing to do with, is found by number.
    template <class Make>
    BodyId layer_body(std::size_t script, const ForwardDecisions& forward, const BackwardDecisions* backward,
                      Make&& make) {
        const std::optional<std::size_t> number = plain_body_number(script, forward, backward);
        if (!number) return body(body_key(script, forward, backward), std::forward<Make>(make));
        if (plain_bodies_.size() <= *number) plain_bodies_.resize(*number + 1);
        std::optional<BodyId>& known = plain_bodies_[*number];
        if (!known) known = body(body_key(script, forward, backward), std::forward<Make>(make));
        return *known;
    }

    // the stages of a run
    void set_up();
    void step(RunStage stage);
    void schedule_steps();
    void schedule_step(const ScheduleStep& entry);
    void begin_step(bool first);
    void optimizer(bool first);
    void launch(const BucketSchedule::Launches& launches, std::int64_t microbatch);
    void await_buckets();
    void gather(const std::vector<BucketSchedule::Wait>& waits);
    [[nodiscard]] std::uint32_t frame_of(const Transfer& transfer) const;
    [[nodiscard]] bool sends_static(const Transfer& transfer) const;
    void transfers(const std::vector<Transfer>& transfers, BodyBuilder::TransferCall call);
    [[nodiscard]] bool input_emptied(Chunk chunk);
    void finish_counts();

    // layers
    void forward(Chunk chunk);
    void forward_position(Chunk chunk, std::size_t position);
    void prepare(Chunk chunk, std::size_t position);
    void forward_layer(Chunk chunk, std::size_t position, const ForwardDecisions& decisions);
    /// Asks the manager about the groups of the side; `targets_` holds the frames that joins reach.
    /// Hooks of the steps from `from` up to `to`.
    void decide_forward(Chunk chunk, std::size_t position, ForwardDecisions& decisions, std::size_t from,
                        std::size_t to);
    bool commit(Chunk chunk, std::size_t position, types::Module module, ForwardDecisions& decisions);
    void count_inline_read();
    void count_offload(types::Module module, Bytes bytes, std::int64_t times);
    void backward(Chunk chunk);
    void backward_layer(Chunk chunk, std::size_t position);
    void release_input(Chunk chunk);
    void end_recomputed(Chunk chunk, const layers::RecomputedSpan& span);
    BackwardDecisions decide_backward(Chunk chunk, std::size_t position, const ForwardDecisions& forward_decisions);
    void follow_orders(Chunk chunk, std::size_t position, const Hook& hook, const BackwardOrders& orders,
                       BackwardDecisions& decisions);
    ReloadTarget reach(GroupRef ref, std::uint32_t own, bool empty);
    Scope scope_of(std::uint32_t frame);
    [[nodiscard]] bool on_side(const Hook& hook, std::size_t script, bool forward, Side side) const;
    [[nodiscard]] std::vector<std::uint32_t> with_targets(std::uint32_t own, std::uint32_t neighbour) const;

    // paired chunks
    [[nodiscard]] bool is_layer(Chunk chunk, std::size_t position) const { return layer_number(chunk, position) >= 0; }
    void paired(Chunk ahead, Chunk back);
    void pair_of_layers(Chunk ahead, std::size_t next, Chunk back, std::size_t position);

    // graphs
    [[nodiscard]] bool graphed(std::size_t script) const { return replaying_ && builder_.graphs_of(script) != nullptr; }
    [[nodiscard]] bool delays(std::size_t script, types::Module module) const;
    [[nodiscard]] bool input_static(Chunk chunk, std::size_t position) const;
    [[nodiscard]] bool gradient_static(Chunk chunk, std::size_t position) const;
    [[nodiscard]] std::uint32_t captured_frame(Chunk chunk, std::size_t position) const;
    void capture();
    void plan_graph_buffers();
    [[nodiscard]] bool input_in_place(const layers::ChunkLayers& chunk, std::size_t position) const;
    [[nodiscard]] bool gradient_in_place(const layers::ChunkLayers& chunk, std::size_t position) const;
    void place_captured_frames();
    void prepare_capture();
    void capture_layers();
    void capture_iteration();
    void replay_iteration();
    void capture_forward(Chunk chunk);
    void capture_backward(Chunk chunk);
    void capture_backward_layer(Chunk chunk, std::size_t position);
    void begin_graph();
    void end_graph();
    void forward_around_graph(Chunk chunk, std::size_t position, ForwardDecisions& decisions);
    /// The commits of one layer's delayed groups.
    struct Flush {
        BodyId body{};
        Chunk chunk;
        std::size_t position = 0;
        std::vector<std::uint32_t> scopes;
    };
    std::vector<Flush> commit_delayed();

    static constexpr std::uint32_t kNoFrame = UINT32_MAX;
    static constexpr std::size_t kAllSteps = SIZE_MAX;

    const layers::StageLayers& stage_;
    PipelineShape shape_;
    types::OffloadChoice choice_;
    Lowered result_;
    std::vector<FrameLayout> layouts_;
    BodyBuilder builder_;
    Frames frames_;
    std::vector<Chunk> forwards_;
    BucketSchedule buckets_;
    std::vector<std::uint32_t> numbers_;                      ///< by virtual stage and microbatch
    std::vector<std::shared_ptr<const ChunkGroups>> groups_;  ///< by virtual stage
    std::vector<std::vector<std::uint32_t>> group_base_;      ///< by virtual stage and position
    std::unique_ptr<OffloadManager> manager_;
    std::vector<std::vector<Hook>> forward_hooks_;
    std::vector<std::vector<Hook>> backward_hooks_;
    std::vector<ForwardDecisions> decisions_;  ///< by frame
    std::vector<std::uint32_t> targets_;
    std::unordered_map<std::string, BodyId> bodies_;
    std::vector<std::optional<BodyId>> plain_bodies_;  ///< by plain_body_number
    std::unordered_map<std::string, SegmentBodies> segments_;
    RunStage stage_of_run_ = RunStage::setup;
    bool replaying_ = false;                            ///< layer by layer
    std::uint32_t graph_ = 0;                           ///< that the next instance begins, ends or launches
    std::vector<ForwardDecisions> captured_decisions_;  ///< by frame
    std::vector<std::uint32_t> forward_graphs_;         ///< by frame
    std::vector<std::uint32_t> backward_graphs_;
    SurfacePlan surfaces_;
    std::optional<std::uint32_t> last_gradient_frame_;  ///< where the graph captured last left its input's gradient
    /// A group whose commit waits for the next layer's graph.
    struct Delayed {
        Chunk chunk;
        std::size_t position = 0;
    };
    std::vector<Delayed> delayed_;
    std::vector<bool> backward_done_;  ///< by frame, in this step
};

}  // namespace stowage::program
