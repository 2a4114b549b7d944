#include "planner/program/megatron_manager.hpp"

#include <algorithm>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::program {

MegatronManager::MegatronManager(std::vector<std::shared_ptr<const ChunkGroups>> forward_chunks,
                                 std::vector<std::uint32_t> backward_order, std::int64_t pipeline_rank,
                                 types::OffloadChoice choice, types::RuleSet rules)
    : backward_order_(std::move(backward_order)),
      pipeline_rank_(pipeline_rank),
      choice_(std::move(choice)),
      keeps_undecided_pending_(rules == types::RuleSet::pr_3219 || rules == types::RuleSet::core_0_18) {
    STOWAGE_CHECK(choice_.max_inflight_offloads.value_or(0) >= 0, "a cap on copies under way is not negative");
    STOWAGE_CHECK(choice_.fraction >= 0 && choice_.fraction <= 1, "a fraction lies between 0 and 1");
    STOWAGE_CHECK(backward_order_.size() == forward_chunks.size(), "every chunk has one place in the backward order");
    for (auto& sites : forward_chunks) {
        Chunk chunk;
        chunk.groups.resize(sites->size());
        chunk.sites = std::move(sites);
        chunks_.push_back(std::move(chunk));
    }
}

void MegatronManager::reset() {
    for (Chunk& chunk : chunks_) {
        chunk.started = 0;
        chunk.pending.clear();
        chunk.reload.clear();
        chunk.loading.clear();
        for (auto& groups : chunk.under_way) groups.clear();
        for (Group& group : chunk.groups) {
            group.place = Place::device;
            group.unmanaged = false;
        }
    }
    forward_chunk_.reset();
    backward_chunk_.reset();
    forward_cursor_ = 0;
    backward_cursor_ = 0;
}

void MegatronManager::begin_record() {
    reset();
    recording_ = true;
}

void MegatronManager::begin_steady() {
    if (!policy_applied_) apply_policy();
    policy_applied_ = true;
    recording_ = false;
    reset();
}

void MegatronManager::begin_forward(std::uint32_t chunk) {
    if (recording_) forward_chunk_ = chunk;
}

bool MegatronManager::owns(std::uint32_t chunk, types::Module module, std::uint32_t from) const {
    const ChunkGroups& sites = *chunks_[chunk].sites;
    return std::any_of(sites.begin() + std::min<std::ptrdiff_t>(from, std::ssize(sites)), sites.end(),
                       [module](const GroupSite& site) { return site.module == module; });
}

bool MegatronManager::finished(const Chunk& chunk, types::Module module) const {
    if (chunk.reload.empty() && chunk.pending.empty() && chunk.started > 0) return true;
    const auto number = static_cast<std::uint32_t>(&chunk - chunks_.data());
    return !owns(number, module, chunk.started);
}

void MegatronManager::advance_forward(types::Module module) {
    while (!forward_chunk_ || finished(chunks_[*forward_chunk_], module)) {
        if (forward_cursor_ == chunks_.size()) {
            forward_chunk_.reset();
            return;
        }
        forward_chunk_ = static_cast<std::uint32_t>(forward_cursor_++);
    }
}

void MegatronManager::start(std::uint32_t chunk, std::uint32_t group) {
    const types::Module module = (*chunks_[chunk].sites)[group].module;
    if (!recording_) advance_forward(module);
    if (!forward_chunk_) {
        chunks_[chunk].groups[group].unmanaged = true;
        return;
    }
    if (*forward_chunk_ != chunk) {
        chunk_mismatch_ = true;
        chunks_[chunk].groups[group].unmanaged = true;
        return;
    }
    Chunk& current = chunks_[chunk];
    ++current.started;
    while ((*current.sites)[current.started - 1].module != module) ++current.started;
    STOWAGE_CHECK(current.started - 1 == group, "groups start in the order of the first iteration");
    current.pending.push_back(group);
}

bool MegatronManager::offload_now(std::uint32_t chunk, std::uint32_t group) const {
    if (recording_) return true;
    if (!chunks_[chunk].groups[group].offload) return false;
    const types::Module module = (*chunks_[chunk].sites)[group].module;
    for (std::size_t i = backward_cursor_; i < backward_order_.size(); ++i) {
        if (!owns(backward_order_[i], module)) continue;
        return backward_order_[i] != chunk || owns(chunk, module, group + 1);
    }
    return true;
}

bool MegatronManager::commit(std::uint32_t chunk, std::uint32_t group) {
    Chunk& current = chunks_[chunk];
    joined_.reset();
    if (current.groups[group].unmanaged) return false;
    const types::Module module = (*current.sites)[group].module;
    const auto found = std::find_if(current.pending.begin(), current.pending.end(), [&](std::uint32_t candidate) {
        return (*current.sites)[candidate].module == module;
    });
    STOWAGE_CHECK(found != current.pending.end(), "a group is committed after its start");
    const bool offloaded = *found == group && offload_now(chunk, group);
    if (offloaded) {
        current.reload.push_back(group);
        current.groups[group].place = Place::host;
        if (choice_.max_inflight_offloads) {
            std::deque<std::uint32_t>& copies = current.under_way[static_cast<std::size_t>(module)];
            copies.push_back(group);
            if (static_cast<std::int64_t>(copies.size()) > *choice_.max_inflight_offloads) {
                joined_ = GroupRef{chunk, copies.front()};
                copies.pop_front();
            }
        }
    }
    if (offloaded || !keeps_undecided_pending_) current.pending.erase(found);
    return offloaded;
}

bool MegatronManager::unmanaged(std::uint32_t chunk, std::uint32_t group) const {
    return chunks_[chunk].groups[group].unmanaged;
}

std::optional<GroupRef> MegatronManager::commit_backward(std::uint32_t chunk, std::uint32_t group) {
    const types::Module module = (*chunks_[chunk].sites)[group].module;
    if (backward_chunk_ != chunk) {
        do {
            if (backward_cursor_ == backward_order_.size()) break;
            backward_chunk_ = backward_order_[backward_cursor_++];
        } while (!owns(*backward_chunk_, module));
        if (backward_chunk_ != chunk) chunk_mismatch_ = true;
    }
    Chunk& current = chunks_[chunk];
    const auto found = std::find_if(current.loading.begin(), current.loading.end(), [&](std::uint32_t candidate) {
        return (*current.sites)[candidate].module == module;
    });
    if (found == current.loading.end()) return std::nullopt;
    const GroupRef awaited{chunk, *found};
    current.loading.erase(found);
    return awaited;
}

bool MegatronManager::read(std::uint32_t chunk, std::uint32_t group) {
    Group& current = chunks_[chunk].groups[group];
    if (current.place != Place::host) return false;
    current.place = Place::device;
    return true;
}

std::optional<GroupRef> MegatronManager::reload_top(std::uint32_t chunk) {
    Chunk& current = chunks_[chunk];
    if (current.reload.empty()) return std::nullopt;
    const std::uint32_t group = current.reload.back();
    current.reload.pop_back();
    current.loading.push_back(group);
    return GroupRef{chunk, group};
}

std::optional<GroupRef> MegatronManager::start_backward(std::uint32_t chunk) {
    std::optional<GroupRef> target;
    if (!chunks_[chunk].reload.empty()) {
        target = reload_top(chunk);
    } else {
        std::size_t next = backward_cursor_;
        while (next < backward_order_.size() && chunks_[backward_order_[next]].groups.empty()) ++next;
        if (next < backward_order_.size()) {
            const Chunk& following = chunks_[backward_order_[next]];
            if (following.started == following.groups.size()) target = reload_top(backward_order_[next]);
        }
    }
    if (target) {
        Group& prefetched = chunks_[target->chunk].groups[target->group];
        if (prefetched.place == Place::host) prefetched.place = Place::reloaded;
    }
    return target;
}

BackwardOrders MegatronManager::backward_hook(layers::StepKind kind, std::uint32_t chunk, std::uint32_t group) {
    BackwardOrders orders;
    if (kind == layers::StepKind::commit) orders.wait = commit_backward(chunk, group);
    if (kind == layers::StepKind::read) orders.read_inline = read(chunk, group);
    if (kind == layers::StepKind::start) orders.reload = start_backward(chunk);
    orders.reload_is_empty = orders.reload && !prefetched(*orders.reload);
    return orders;
}

void MegatronManager::apply_policy() {
    apply_margin();
    apply_delta();
    apply_fraction();
}

void MegatronManager::apply_margin() {
    int margin = 0;
    std::vector<std::pair<types::Module, GroupRef>>
        last;  // in the order the names are met, scanning from the last backward
    for (auto chunk = backward_order_.rbegin(); chunk != backward_order_.rend(); ++chunk) {
        types::ModuleSet names;
        const ChunkGroups& sites = *chunks_[*chunk].sites;
        for (std::uint32_t i = 0; i < sites.size(); ++i) {
            names.insert(sites[i].module);
            const auto found = std::find_if(last.begin(), last.end(),
                                            [&](const auto& entry) { return entry.first == sites[i].module; });
            if (found == last.end())
                last.emplace_back(sites[i].module, GroupRef{*chunk, i});
            else
                found->second = GroupRef{*chunk, i};
        }
        margin = std::max(margin, names.size());
    }
    for (const auto& [module, ref] : last) {
        if (margin == 0) break;
        chunks_[ref.chunk].groups[ref.group].offload = false;
        --margin;
    }
}

void MegatronManager::apply_delta() {
    types::Bytes keep{pipeline_rank_ * choice_.delta_bytes_across_pp_ranks};
    for (const std::uint32_t number : backward_order_) {
        Chunk& chunk = chunks_[number];
        for (std::size_t i = 0; i < chunk.groups.size(); ++i) {
            if (!chunk.groups[i].offload || keep <= types::Bytes{0}) continue;
            keep -= (*chunk.sites)[i].bytes;
            chunk.groups[i].offload = false;
        }
    }
}

void MegatronManager::apply_fraction() {
    for (Chunk& chunk : chunks_) {
        std::vector<std::size_t> eligible;
        for (std::size_t i = 0; i < chunk.groups.size(); ++i)
            if (chunk.groups[i].offload && (*chunk.sites)[i].bytes > types::Bytes{0}) eligible.push_back(i);
        // Megatron truncates the product in IEEE doubles: 10 groups at 0.9 lose none, since 10 * (1 - 0.9) is below 1.
        const auto dropped = static_cast<std::size_t>(static_cast<double>(eligible.size()) * (1 - choice_.fraction));
        for (std::size_t i = eligible.size() - dropped; i < eligible.size(); ++i)
            chunk.groups[eligible[i]].offload = false;
    }
}

types::Bytes MegatronManager::table_bytes(types::Module module) const {
    types::Bytes sum;
    for (std::uint32_t number = 0; number < chunks_.size(); ++number) {
        const Chunk& chunk = chunks_[number];
        for (std::size_t i = 0; i < chunk.groups.size(); ++i)
            if (chunk.groups[i].offload && (*chunk.sites)[i].module == module) sum += (*chunk.sites)[i].bytes;
        if (!backward_order_.empty() && number == backward_order_.front()) break;
    }
    return sum;
}

}  // namespace stowage::program
