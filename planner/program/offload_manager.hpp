#pragma once

// What decides which groups leave and when they come back. The lowering reports every hook of a step in the order the
// host meets it, and puts what is ordered into the bodies.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/module.hpp"

namespace stowage::program {

/// One group of a chunk: one module of one layer. `bytes` counts the tensors that pass the size filter, each saved
/// entry once.
struct GroupSite {
    types::Module module{};
    std::uint32_t position = 0;  ///< the layer's place in the chunk
    types::Bytes bytes;
};

/// The groups of one chunk in the order their hooks start.
using ChunkGroups = std::vector<GroupSite>;

struct GroupRef {
    std::uint32_t chunk = 0;
    std::uint32_t group = 0;
    friend bool operator==(const GroupRef&, const GroupRef&) = default;
};

/// What is ordered at one hook of a backward.
struct BackwardOrders {
    std::optional<GroupRef> wait;    ///< the main stream waits for its reload
    bool wait_is_near = false;       ///< the reload was issued by a hook of the same layer
    bool read_inline = false;        ///< read: the tensors are still on the host and come on the main stream
    std::optional<GroupRef> reload;  ///< Megatron's: prefetched now
    bool reload_is_empty = false;    ///< its tensors were read inline before
    std::vector<GroupRef> joins;     ///< stowage's: the main stream waits for these copies to the host,
    std::vector<GroupRef> reloads;   ///< then these are reloaded
};

class OffloadManager {
public:
    OffloadManager() = default;
    OffloadManager(const OffloadManager&) = delete;
    OffloadManager& operator=(const OffloadManager&) = delete;
    OffloadManager(OffloadManager&&) = delete;
    OffloadManager& operator=(OffloadManager&&) = delete;
    virtual ~OffloadManager() = default;

    /// The first iteration begins; any later one does.
    virtual void begin_record() = 0;
    virtual void begin_steady() = 0;

    virtual void begin_forward(std::uint32_t chunk) = 0;
    virtual void start(std::uint32_t chunk, std::uint32_t group) = 0;
    /// Result: whether the group's tensors are copied to the host now.
    virtual bool commit(std::uint32_t chunk, std::uint32_t group) = 0;
    /// The group whose copy the main stream waits for because of the last commit.
    [[nodiscard]] virtual std::optional<GroupRef> joined() const = 0;
    /// Whether the forward of this group ran without the manager (it has no backward hooks then).
    [[nodiscard]] virtual bool unmanaged(std::uint32_t chunk, std::uint32_t group) const = 0;
    /// `kind`: commit, read or start, as the backward meets them.
    virtual BackwardOrders backward_hook(layers::StepKind kind, std::uint32_t chunk, std::uint32_t group) = 0;

    /// Whether Megatron would have stopped with its "Chunk mismatch" assertion (rule H3).
    [[nodiscard]] virtual bool chunk_mismatch() const = 0;
    /// The bytes of Megatron's summary table.
    [[nodiscard]] virtual types::Bytes table_bytes(types::Module module) const = 0;
};

}  // namespace stowage::program
