#include "planner/program/stage_lowering.hpp"

namespace stowage::program {

/// The forward of one chunk beside the backward of another: what is not a layer first, then pairs of layers, then the
/// layers that one has more, then the rest.
void StageLowering::paired(Chunk ahead, Chunk back) {
    manager_->begin_forward(number_of(ahead));
    std::size_t next = 0;
    std::size_t left = positions(back);
    while (left > 0 && !is_layer(back, left - 1)) backward_layer(back, --left);
    const auto forward_left = [&] { return next < positions(ahead); };
    while (forward_left() && !is_layer(ahead, next)) forward_position(ahead, next++);
    while (left > 0 && is_layer(back, left - 1) && forward_left() && is_layer(ahead, next))
        pair_of_layers(ahead, next++, back, --left);
    while (left > 0) backward_layer(back, --left);
    while (forward_left()) forward_position(ahead, next++);
    release_input(back);
}

void StageLowering::pair_of_layers(Chunk ahead, std::size_t next, Chunk back, std::size_t position) {
    const std::size_t back_script = script_at(back, position);
    const std::uint32_t back_frame = frames_.layer(back, position);
    const ForwardDecisions& before = decisions_[back_frame];
    targets_.clear();
    const BackwardDecisions backward = decide_backward(back, position, before);
    const std::vector<std::uint32_t> back_frames = with_targets(back_frame, frame_before(back, position));
    const SegmentBodies back_bodies = segment_bodies(body_key(back_script, before, &backward), [&] {
        return builder_.backward_segments(back_script, before, backward);
    });

    const std::size_t script = script_at(ahead, next);
    ForwardDecisions& decisions = decisions_[frames_.layer(ahead, next)];
    gather(buckets_.before_layer(ahead, next));
    decisions = {};
    decisions.input_static = input_static(ahead, next);
    decisions.gradient_static = gradient_static(ahead, next);
    decisions.input_held = next == 0 && receives(ahead);
    if (graphed(script)) decisions.side = Side::outside;
    targets_.clear();
    decide_forward(ahead, next, decisions, 0, kAllSteps);
    const std::vector<std::uint32_t> frames = with_targets(frames_.layer(ahead, next), frame_after(ahead, next));
    const SegmentBodies bodies = segment_bodies(body_key(script, decisions, nullptr),
                                                [&] { return builder_.forward_segments(script, decisions); });

    const auto run_back = [&](Segment segment) {
        if (graphed(back_script)) graph_ = backward_graphs_[captured_frame(back, position)];
        if (const auto id = back_bodies[index(segment)])
            add_instance(*id, back.microbatch, layer_number(back, position), back_frames);
    };
    const auto run = [&](Segment segment) {
        if (graphed(script)) graph_ = forward_graphs_[captured_frame(ahead, next)];
        if (const auto id = bodies[index(segment)])
            add_instance(*id, ahead.microbatch, layer_number(ahead, next), frames);
    };
    run_back(Segment::before);
    run_back(Segment::first_exchange);
    run(Segment::before);
    run_back(Segment::between);
    run(Segment::first_exchange);
    run_back(Segment::between_gradients);
    run_back(Segment::second_exchange);
    run(Segment::between);
    run(Segment::second_exchange);
    run_back(Segment::after);
    run(Segment::after);
    run_back(Segment::after_gradients);
    backward_done_[back_frame] = true;
    launch(buckets_.after_layer(back, position), back.microbatch);
}

}  // namespace stowage::program
