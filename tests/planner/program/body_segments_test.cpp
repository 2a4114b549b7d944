#include "planner/program/body_segments.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stowage::program {
namespace {

using layers::Part;
using layers::Phase;

/// A body written by letters: k a kernel, w a weight-gradient kernel, f a free, x an exchange that the main stream
/// waits for (three operations). What stands before a '/' is attention, what follows the dense feed-forward part.
struct Written {
    Body body{"layer", {}};
    std::vector<OperationRange> exchanges;
};

Written written(const std::string& letters, Part first = Part::qkv_linear, Part second = Part::mlp_fc1) {
    Written result;
    Part part = first;
    auto& operations = result.body.operations;
    for (const char letter : letters) {
        const std::size_t begin = operations.size();
        if (letter == '/') part = second;
        if (letter == 'k') operations.push_back({.kind = OperationKind::compute, .part = part});
        if (letter == 'w')
            operations.push_back({.kind = OperationKind::compute, .part = part, .phase = Phase::weight_gradient});
        if (letter == 'f') operations.push_back({.kind = OperationKind::free, .part = part});
        if (letter != 'x') continue;
        operations.push_back(
            {.kind = OperationKind::stream_wait, .stream = Stream::communication, .other = Stream::main});
        operations.push_back({.kind = OperationKind::collective, .stream = Stream::communication});
        operations.push_back(
            {.kind = OperationKind::stream_wait, .stream = Stream::main, .other = Stream::communication});
        result.exchanges.push_back({begin, operations.size()});
    }
    return result;
}

/// < the communication stream's wait for the main one, c the collective, ! the event's record, ? the main stream's wait
/// for it, > the main stream's wait for the whole communication stream.
std::string text(const Body& body) {
    std::string letters;
    for (const Operation& operation : body.operations) switch (operation.kind) {
            case OperationKind::compute: letters += operation.phase == Phase::weight_gradient ? 'w' : 'k'; break;
            case OperationKind::free: letters += 'f'; break;
            case OperationKind::collective: letters += 'c'; break;
            case OperationKind::stream_wait: letters += operation.stream == Stream::main ? '>' : '<'; break;
            case OperationKind::event_record: letters += '!' + std::to_string(operation.slot); break;
            case OperationKind::event_wait: letters += '?' + std::to_string(operation.slot); break;
            default: letters += '-';
        }
    return letters;
}

std::string text(const BodySegments& segments) {
    std::string all = text(segments.front());
    for (std::size_t i = 1; i < segments.size(); ++i) all += " | " + text(segments[i]);
    return all;
}

TEST(BodySegments, IssueAnExchangeInItsPieceAndAwaitItInTheNext) {
    const Written layer = written("kkxfkkkxk");
    EXPECT_EQ(text(split_forward(layer.body, layer.exchanges, 4)), "kk | <c!4 | ?4fkkk | <c!5 | ?5k |  | ");
    EXPECT_EQ(text(split_backward(layer.body, layer.exchanges, 0)), "kk | <c!0 | ?0fkkk | <c!1 | ?1k |  | ");
}

TEST(BodySegments, SendRowsAndTheirWeightsTogether) {
    const Written layer = written("kxxkkxk");
    EXPECT_EQ(text(split_forward(layer.body, layer.exchanges, 0)), "k | <c<c!0 | ?0kk | <c!1 | ?1k |  | ");
}

TEST(BodySegments, SplitALayerWithoutExpertsBetweenItsHalves) {
    const Written forward = written("kk/kkk");
    EXPECT_EQ(text(split_forward(forward.body, {}, 0)), "kk |  | kkk |  |  |  | ");
    const Written backward = written("kkk/kk", Part::mlp_fc2, Part::attn_proj);
    EXPECT_EQ(text(split_backward(backward.body, {}, 0)), " |  | kkk |  | kk |  | ");
}

TEST(BodySegments, DelayWeightGradientsWithWhatIsFreedBehindThem) {
    const Written layer = written("kxkfwkfwfxkwf");
    BodySegments segments = split_backward(layer.body, layer.exchanges, 0);
    delay_weight_gradients(segments);
    // Between: the free before the first gradient stays; its operands and what is freed later wait.
    EXPECT_EQ(text(segments), "k | <c!0 | ?0kfk | <c!1 | ?1k | wwff | wf");
}

TEST(BodySegments, RefuseTokensThatTravelMoreThanThereAndBack) {
    const Written layer = written("kxkxkxk");
    EXPECT_THROW(split_forward(layer.body, layer.exchanges, 0), std::logic_error);
}

}  // namespace
}  // namespace stowage::program
