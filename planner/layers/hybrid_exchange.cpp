#include "planner/layers/hybrid_exchange.hpp"

#include <functional>
#include <numeric>
#include <utility>

namespace stowage::layers {
namespace {

std::int64_t elements_of(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

Slot copy(Writer& writer, const std::string& name, Shape shape) {
    const std::int64_t elements = elements_of(shape);
    const Slot slot = writer.make(name, std::move(shape));
    writer.memory_kernel(name, 4 * elements);
    return slot;
}

Slot exchange(Writer& writer, const std::string& name, Slot source, std::int64_t width) {
    const Slot received = writer.make(name + ".received", {writer.dim.tokens, width});
    writer.collective(name, CollectiveKind::all_to_all, CommGroup::context, 2 * writer.dim.tokens * width);
    writer.script.drop(source);
    return received;
}

}  // namespace

Slot tokens_to_heads(Writer& writer, const std::string& name, const std::vector<std::int64_t>& pieces, Shape shape) {
    std::vector<Slot> received;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        const std::string piece = name + "." + std::to_string(i);
        const Slot by_rank = copy(writer, piece + ".by_rank", {writer.dim.tokens, pieces[i]});
        received.push_back(exchange(writer, piece, by_rank, pieces[i]));
    }
    const Slot joined = copy(writer, name + ".joined", shape);
    const Slot result = copy(writer, name + ".ordered", std::move(shape));
    writer.script.drop(joined);
    for (Slot slot : received) writer.script.drop(slot);
    return result;
}

Slot heads_to_tokens(Writer& writer, const std::string& name, std::int64_t width, Shape shape) {
    const Slot dealt = copy(writer, name + ".dealt", {writer.dim.tokens, width});
    const Slot received = exchange(writer, name, dealt, width);
    const Slot result = copy(writer, name + ".joined", std::move(shape));
    writer.script.drop(received);
    return result;
}

}  // namespace stowage::layers
