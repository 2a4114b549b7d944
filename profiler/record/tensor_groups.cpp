#include "profiler/record/tensor_groups.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

namespace stowage::profiler {
namespace {

using recording::Group;
using recording::Tensor;
using types::Bytes;
using types::Nanoseconds;

/// One saving of a storage, or of a part of it.
struct Save {
    Mark mark;
    std::uint64_t address = 0;
    Bytes bytes;
    bool offloaded = false;
    std::size_t order = 0;  ///< number of the memory event
};

struct Storage {
    std::uint64_t address = 0;
    Bytes bytes;
    Mark made_by;
    std::optional<Mark> freed_by;  ///< none: not in the step
    Nanoseconds allocated{0};
    Nanoseconds freed{0};
    bool before = false;  ///< it was there before the step
    std::size_t order = 0;
    std::vector<Save> saves;
};

constexpr std::string_view kForward = "forward";

class Storages {
public:
    explicit Storages(const RawStep& step) : step_(step) {
        for (const Activity& activity : step.activities.activities) {
            origin_ = origin_ ? std::min(*origin_, activity.start) : activity.start;
            end_ = std::max(end_, activity.end);
        }
        if (!origin_) origin_ = step.memory.empty() ? Nanoseconds{0} : step.memory.front().time;
        if (!step.memory.empty()) end_ = std::max(end_, step.memory.back().time);
        for (std::size_t i = 0; i < step.memory.size(); ++i) note(step.memory[i], i);
        for (Storage& storage : storages_)
            if (!storage.freed_by) storage.freed = end_ - *origin_;
    }

    [[nodiscard]] const std::vector<Storage>& all() const { return storages_; }

private:
    void note(const MemoryEvent& event, std::size_t order) {
        switch (event.kind) {
            case MemoryEvent::Kind::allocate: allocate(event, order); break;
            case MemoryEvent::Kind::free: free(event); break;
            case MemoryEvent::Kind::save: save(event, order, false); break;
            case MemoryEvent::Kind::offloaded: save(event, order, true); break;
        }
    }

    [[nodiscard]] Mark mark_of(const MemoryEvent& event) const {
        const auto found = step_.marks.find(event.issued_under);
        return found == step_.marks.end() ? Mark{} : found->second;
    }

    std::size_t allocate(const MemoryEvent& event, std::size_t order) {
        Storage storage;
        storage.address = event.address;
        storage.bytes = event.bytes;
        storage.made_by = mark_of(event);
        storage.allocated = event.time - *origin_;
        storage.order = order;
        storages_.push_back(std::move(storage));
        live_[event.address] = storages_.size() - 1;
        return storages_.size() - 1;
    }

    /// What was not allocated in the step was there before.
    std::size_t allocate_before(const MemoryEvent& event, std::size_t order) {
        const std::size_t number = allocate(event, order);
        storages_[number].before = true;
        storages_[number].made_by = {};
        storages_[number].allocated = Nanoseconds{0};
        return number;
    }

    void free(const MemoryEvent& event) {
        const auto found = live_.find(event.address);
        if (found == live_.end()) return;
        storages_[found->second].freed_by = mark_of(event);
        storages_[found->second].freed = event.time - *origin_;
        live_.erase(found);
    }

    void save(const MemoryEvent& event, std::size_t order, bool offloaded) {
        const std::optional<std::size_t> held = holding(event.address);
        Storage& storage = storages_[held ? *held : allocate_before(event, order)];
        if (storage.before && event.address == storage.address) storage.bytes = std::max(storage.bytes, event.bytes);
        const Mark mark = mark_of(event);
        if (offloaded) {
            const auto same = std::find_if(storage.saves.begin(), storage.saves.end(), [&](const Save& save) {
                return !save.offloaded && save.address == event.address && save.bytes == event.bytes &&
                       save.mark.module == mark.module && save.mark.layer == mark.layer;
            });
            if (same != storage.saves.end()) {
                same->offloaded = true;
                return;
            }
        }
        storage.saves.push_back({mark, event.address, event.bytes, offloaded, order});
    }

    /// The live storage that the address lies in.
    [[nodiscard]] std::optional<std::size_t> holding(std::uint64_t address) const {
        auto after = live_.upper_bound(address);
        if (after == live_.begin()) return std::nullopt;
        const std::size_t number = std::prev(after)->second;
        const Storage& storage = storages_[number];
        if (address >= storage.address + static_cast<std::uint64_t>(storage.bytes.count)) return std::nullopt;
        return number;
    }

    const RawStep& step_;
    std::optional<Nanoseconds> origin_;
    Nanoseconds end_{0};
    std::vector<Storage> storages_;
    std::map<std::uint64_t, std::size_t> live_;  ///< by address
};

bool outlives_forward(const Storage& storage) {
    return storage.made_by.phase == kForward && storage.freed_by && storage.freed_by->phase != kForward;
}

/// A tensor of a group, with what orders it.
struct Kept {
    std::size_t order = 0;
    Mark mark;
    Tensor tensor;
};

Tensor tensor_of(const Storage& storage) {
    Tensor tensor;
    tensor.bytes = tensor.storage_bytes = storage.bytes;
    tensor.allocated = storage.allocated;
    tensor.freed = storage.freed;
    tensor.parameter = storage.before && !storage.freed_by;
    return tensor;
}

/// As often as it was saved; once if it is kept and nobody says by whom.
void add_kept(const Storage& storage, std::uint32_t number, std::vector<Kept>& kept) {
    Tensor tensor = tensor_of(storage);
    tensor.storage = number;
    if (storage.saves.empty()) kept.push_back({storage.order, storage.made_by, tensor});
    for (const Save& save : storage.saves) {
        tensor.bytes = save.bytes;
        tensor.offloaded = save.offloaded;
        kept.push_back({save.order, save.mark, tensor});
    }
}

std::vector<Kept> kept_tensors(const std::vector<Storage>& storages) {
    std::vector<Kept> kept;
    std::uint32_t number = 0;
    for (const Storage& storage : storages)
        if (!storage.saves.empty() || outlives_forward(storage)) add_kept(storage, number++, kept);
    std::stable_sort(kept.begin(), kept.end(),
                     [](const Kept& left, const Kept& right) { return left.order < right.order; });
    return kept;
}

}  // namespace

std::vector<Group> tensor_groups(const RawStep& step) {
    std::vector<Group> groups;
    std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>, std::size_t> numbers;
    const Storages storages(step);
    for (const Kept& kept : kept_tensors(storages.all())) {
        const Mark& mark = kept.mark;
        const auto [entry, is_new] =
            numbers.try_emplace({mark.module, mark.layer, mark.microbatch, mark.chunk}, groups.size());
        if (is_new) groups.push_back({mark.module, mark.layer, mark.microbatch, std::max(mark.chunk, 0), {}});
        groups[entry->second].tensors.push_back(kept.tensor);
    }
    return groups;
}

}  // namespace stowage::profiler
