#include "planner/program/body_segments.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

using Operations = std::vector<Operation>;

bool computes(const Operation& operation) { return operation.kind == OperationKind::compute; }

/// Exchanges with no kernel between them travel together: rows and their weights.
std::vector<OperationRange> joined(const Body& body, const std::vector<OperationRange>& exchanges) {
    std::vector<OperationRange> joints;
    for (const OperationRange& exchange : exchanges) {
        const auto at = [&](std::size_t place) { return body.operations.begin() + static_cast<std::ptrdiff_t>(place); };
        const bool next = !joints.empty() && std::none_of(at(joints.back().end), at(exchange.begin), computes);
        if (next)
            joints.back().end = exchange.end;
        else
            joints.push_back(exchange);
    }
    STOWAGE_CHECK(joints.size() <= 2, body.name + ": tokens travel more than there and back");
    return joints;
}

/// Issues what the range holds without the main stream's wait for it, and records the event.
void issue(const Body& body, const OperationRange& range, std::uint32_t event, Operations& into) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
        const Operation& operation = body.operations[i];
        const bool waits = operation.kind == OperationKind::stream_wait && operation.stream == Stream::main;
        if (!waits) into.push_back(operation);
    }
    into.push_back({.kind = OperationKind::event_record,
                    .stream = Stream::communication,
                    .part = body.operations[range.begin].part,
                    .slot = event});
}

void copy(const Body& body, std::size_t begin, std::size_t end, Operations& into) {
    const auto at = [&](std::size_t place) { return body.operations.begin() + static_cast<std::ptrdiff_t>(place); };
    into.insert(into.end(), at(begin), at(end));
}

void wait(std::uint32_t event, Operations& into) {
    into.push_back({.kind = OperationKind::event_wait, .part = layers::Part::dispatch, .slot = event});
}

void name_all(const Body& body, BodySegments& segments) {
    constexpr std::string_view kNames[] = {"",
                                           ", first exchange",
                                           ", between",
                                           ", second exchange",
                                           ", after",
                                           ", weight gradients between",
                                           ", weight gradients after"};
    for (std::size_t i = 0; i < segments.size(); ++i) segments[i].name = body.name + std::string(kNames[i]);
}

BodySegments split_at_exchanges(const Body& body, const std::vector<OperationRange>& joints, std::uint32_t event) {
    BodySegments segments;
    std::size_t from = 0;
    std::size_t compute = index(Segment::before);
    for (std::size_t i = 0; i < joints.size(); ++i) {
        copy(body, from, joints[i].begin, segments[compute].operations);
        issue(body, joints[i], event + static_cast<std::uint32_t>(i), segments[compute + 1].operations);
        compute += 2;
        wait(event + static_cast<std::uint32_t>(i), segments[compute].operations);
        from = joints[i].end;
    }
    copy(body, from, body.operations.size(), segments[compute].operations);
    return segments;
}

/// A body without exchanges: the operations up to the first one of `second` and the rest.
BodySegments split_at_part(const Body& body, std::initializer_list<layers::Part> second, Segment first_half,
                           Segment second_half) {
    const auto begins = [&](const Operation& operation) {
        return std::find(second.begin(), second.end(), operation.part) != second.end();
    };
    const auto found = std::find_if(body.operations.begin(), body.operations.end(), begins);
    BodySegments segments;
    segments[index(first_half)].operations.assign(body.operations.begin(), found);
    segments[index(second_half)].operations.assign(found, body.operations.end());
    return segments;
}

/// Of one compute piece.
void delay(Operations& piece, Operations& gradients) {
    const auto is_gradient = [](const Operation& operation) {
        return computes(operation) && operation.phase == layers::Phase::weight_gradient;
    };
    const auto first = std::find_if(piece.begin(), piece.end(), is_gradient);
    const auto stays = [&](const Operation& operation) {
        return !is_gradient(operation) && operation.kind != OperationKind::free;
    };
    const auto moved = std::stable_partition(first, piece.end(), stays);
    // The gradients first: a stable partition keeps each kind's own order.
    std::stable_partition(moved, piece.end(), is_gradient);
    gradients.assign(std::make_move_iterator(moved), std::make_move_iterator(piece.end()));
    piece.erase(moved, piece.end());
}

}  // namespace

BodySegments split_forward(const Body& body, const std::vector<OperationRange>& exchanges, std::uint32_t event) {
    const std::vector<OperationRange> joints = joined(body, exchanges);
    BodySegments segments = joints.empty() ? split_at_part(body, {layers::Part::mlp_norm, layers::Part::mlp_fc1},
                                                           Segment::before, Segment::between)
                                           : split_at_exchanges(body, joints, event);
    name_all(body, segments);
    return segments;
}

BodySegments split_backward(const Body& body, const std::vector<OperationRange>& exchanges, std::uint32_t event) {
    const std::vector<OperationRange> joints = joined(body, exchanges);
    BodySegments segments = joints.empty()
                                ? split_at_part(body, {layers::Part::attn_proj}, Segment::between, Segment::after)
                                : split_at_exchanges(body, joints, event);
    name_all(body, segments);
    return segments;
}

void delay_weight_gradients(BodySegments& segments) {
    delay(segments[index(Segment::between)].operations, segments[index(Segment::between_gradients)].operations);
    delay(segments[index(Segment::after)].operations, segments[index(Segment::after_gradients)].operations);
}

}  // namespace stowage::program
