#include "planner/program/work.hpp"

namespace stowage::program {

std::size_t hash_of(const Work& work) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001B3ULL; };
    add(static_cast<std::uint64_t>(work.call));
    add(static_cast<std::uint64_t>(work.sizes.rows));
    add(static_cast<std::uint64_t>(work.sizes.columns));
    add(static_cast<std::uint64_t>(work.sizes.depth));
    add(static_cast<std::uint64_t>(work.sizes.stand_in.length.count()));
    add(static_cast<std::uint64_t>(work.sizes.stand_in.traffic.count));
    for (const BufferRef& buffer : work.buffers) {
        add(static_cast<std::uint64_t>(buffer.space));
        add(buffer.scope);
        add(buffer.slot);
    }
    return static_cast<std::size_t>(hash);
}

}  // namespace stowage::program
