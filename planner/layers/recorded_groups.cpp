#include "planner/layers/recorded_groups.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>
#include <utility>

#include "planner/layers/kept_storages.hpp"

namespace stowage::layers {
namespace {

std::int32_t first_microbatch(const recording::Recording& recording) {
    std::int32_t first = -1;
    for (const recording::Group& group : recording.groups)
        if (group.microbatch >= 0 && (first < 0 || group.microbatch < first)) first = group.microbatch;
    return first;
}

/// In the order of the groups; a storage that stands in several has all their names.
std::vector<KeptStorage> recorded_storages(const recording::Recording& recording) {
    std::vector<KeptStorage> storages;
    std::map<std::uint32_t, std::size_t> numbers;
    const std::int32_t microbatch = first_microbatch(recording);
    for (const recording::Group& group : recording.groups) {
        if (group.microbatch != microbatch || group.module == name_of(Part::pipeline)) continue;
        for (const recording::Tensor& tensor : group.tensors) {
            if (tensor.parameter) continue;
            const auto [number, is_new] = numbers.try_emplace(tensor.storage, storages.size());
            if (is_new) storages.push_back({tensor.storage_bytes, {}});
            storages[number->second].names.push_back({group.layer, group.module});
        }
    }
    return storages;
}

bool share_a_name(const KeptStorage& left, const KeptStorage& right) {
    return std::find_first_of(left.names.begin(), left.names.end(), right.names.begin(), right.names.end()) !=
           left.names.end();
}

/// Takes those that are the same out of both.
void match(std::vector<KeptStorage>& recorded, std::vector<KeptStorage>& planned) {
    std::erase_if(recorded, [&](const KeptStorage& storage) {
        const auto same = std::find_if(planned.begin(), planned.end(), [&](const KeptStorage& other) {
            return other.bytes == storage.bytes && share_a_name(storage, other);
        });
        if (same == planned.end()) return false;
        planned.erase(same);
        return true;
    });
}

bool from_a_neighbour(const KeptStorage& storage) { return storage.names.back().module == name_of(Part::pipeline); }

struct LeftOver {
    std::vector<Bytes> recorded;
    std::vector<Bytes> planned;
    friend auto operator<=>(const LeftOver&, const LeftOver&) = default;
};

std::map<LayerModule, LeftOver> left_over(const std::vector<KeptStorage>& recorded,
                                          const std::vector<KeptStorage>& planned) {
    std::map<LayerModule, LeftOver> left;
    for (const KeptStorage& storage : recorded) left[storage.names.front()].recorded.push_back(storage.bytes);
    for (const KeptStorage& storage : planned) left[storage.names.front()].planned.push_back(storage.bytes);
    for (auto& [name, over] : left) {
        std::sort(over.recorded.begin(), over.recorded.end());
        std::sort(over.planned.begin(), over.planned.end());
    }
    return left;
}

Bytes sum(const std::vector<Bytes>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), Bytes{}); }

/// 0 to 3, 7
std::string ranges(const std::vector<std::int64_t>& numbers) {
    std::ostringstream text;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text << (i == 0 ? "" : ", ") << numbers[i];
        if (last > i) text << (last == i + 1 ? ", " : " to ") << numbers[last];
        i = last;
    }
    return text.str();
}

std::string where(const std::vector<std::int64_t>& layers) {
    if (layers == std::vector<std::int64_t>{-1}) return "";
    return (layers.size() == 1 ? " of layer " : " of layers ") + ranges(layers);
}

std::string tensors(const std::vector<Bytes>& sizes) {
    return std::to_string(sizes.size()) + (sizes.size() == 1 ? " tensor (" : " tensors (") +
           std::to_string(sum(sizes).count) + " bytes)";
}

}  // namespace

Bytes GroupDifference::more() const { return sum(recorded) - sum(planned); }

std::string words_of(const GroupDifference& difference) {
    std::ostringstream text;
    text << difference.module << where(difference.layers) << " kept ";
    if (!difference.recorded.empty()) text << tensors(difference.recorded) << " more";
    if (!difference.recorded.empty() && !difference.planned.empty()) text << ", and ";
    if (!difference.planned.empty()) text << "not " << tensors(difference.planned) << " that the plan has";
    text << ": a microbatch needs " << std::abs(difference.more().count)
         << (difference.more() < Bytes{} ? " bytes less" : " bytes more") << " for each than is planned";
    return text.str();
}

std::vector<GroupDifference> group_differences(const recording::Recording& recording, const StageLayers& stage) {
    if (recording.groups.empty()) return {};
    std::vector<KeptStorage> recorded = recorded_storages(recording);
    std::vector<KeptStorage> planned = kept_storages(stage);
    match(recorded, planned);
    std::erase_if(planned, from_a_neighbour);
    std::map<std::pair<std::string, LeftOver>, std::vector<std::int64_t>> layers;
    for (const auto& [name, over] : left_over(recorded, planned)) layers[{name.module, over}].push_back(name.layer);
    std::vector<GroupDifference> differences;
    for (auto& [key, numbers] : layers)
        differences.push_back({key.first, std::move(numbers), key.second.recorded, key.second.planned});
    return differences;
}

}  // namespace stowage::layers
