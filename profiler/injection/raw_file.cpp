#include "profiler/injection/raw_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>

#include "profiler/injection/archive.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::profiler {

namespace fs = std::filesystem;

template <class Archive, Like<Activity> T>
void fields(Archive& archive, T& value) {
    archive(value.kind, value.copy_kind, value.name, value.start, value.end, value.bytes, value.device, value.context,
            value.stream, value.correlation, value.graph, value.graph_node, value.issued_under);
}

template <class Archive, Like<Call> T>
void fields(Archive& archive, T& value) {
    archive(value.api, value.number, value.name, value.process, value.thread, value.correlation, value.result,
            value.start, value.end);
}

template <class Archive, Like<Allocation> T>
void fields(Archive& archive, T& value) {
    archive(value.release, value.asynchronous, value.place, value.device, value.context, value.stream,
            value.correlation, value.name, value.source, value.time, value.address, value.bytes, value.pool,
            value.pool_size, value.pool_used);
}

template <class Archive, Like<PoolEvent> T>
void fields(Archive& archive, T& value) {
    archive(value.change, value.managed, value.device, value.correlation, value.time, value.address, value.size,
            value.used, value.kept);
}

template <class Archive, Like<EventRecord> T>
void fields(Archive& archive, T& value) {
    archive(value.event, value.device, value.context, value.stream, value.correlation, value.round);
}

template <class Archive, Like<Wait> T>
void fields(Archive& archive, T& value) {
    archive(value.kind, value.context, value.stream, value.event, value.correlation, value.result, value.round,
            value.start, value.end);
}

template <class Archive, Like<NvtxMark> T>
void fields(Archive& archive, T& value) {
    archive(value.name, value.domain, value.process, value.thread, value.time);
}

template <class Archive, Like<NvtxRange> T>
void fields(Archive& archive, T& value) {
    archive(value.name, value.domain, value.process, value.thread, value.id, value.start, value.end);
}

template <class Archive, Like<GraphNode> T>
void fields(Archive& archive, T& value) {
    archive(value.node, value.original, value.thread, value.made);
}

template <class Archive, Like<Drop> T>
void fields(Archive& archive, T& value) {
    archive(value.context, value.stream, value.records);
}

/// Of a node, as a list has it.
struct NodeOperation {
    std::uint64_t node = 0;
    OperationNumber operation = 0;
};

template <class Archive, Like<NodeOperation> T>
void fields(Archive& archive, T& value) {
    archive(value.node, value.operation);
}

template <class Archive, Like<Recording> T>
void fields(Archive& archive, T& value) {
    archive(value.names, value.activities, value.calls, value.allocations, value.pools, value.events, value.waits,
            value.marks, value.ranges, value.nodes, value.dropped, value.drops, value.buffers, value.untimed,
            value.foreign_buffers, value.missing_buffers, value.last_wait);
}

template <class Archive, Like<UsedDevice> T>
void fields(Archive& archive, T& value) {
    archive(value.name, value.driver, value.multiprocessors, value.memory);
}

template <class Archive, Like<InjectedProcess> T>
void fields(Archive& archive, T& value) {
    archive(value.process, value.command, value.cupti, value.cupti_version, value.devices, value.finished,
            value.failure, value.notes, value.recording);
}

namespace {

constexpr std::string_view kMagic = "stowage-raw/1\n";

[[noreturn]] void fail_to_write(const fs::path& path, const char* doing) {
    throw types::Error(
        types::ExitCode::input,
        path.string() + ": " + doing + " failed: " + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
}

void write_bytes(const fs::path& path, std::initializer_list<std::string_view> parts) {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"), std::fclose);
    if (file == nullptr) fail_to_write(path, "opening");
    for (const std::string_view part : parts)
        if (std::fwrite(part.data(), 1, part.size(), file.get()) != part.size()) fail_to_write(path, "writing");
    if (std::fclose(file.release()) != 0) fail_to_write(path, "writing");
}

std::vector<NodeOperation> listed(const NodeOperations& operations) {
    const std::map<std::uint64_t, OperationNumber> sorted(operations.begin(), operations.end());
    std::vector<NodeOperation> list;
    for (const auto& [node, operation] : sorted) list.push_back({node, operation});
    return list;
}

std::string contents_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw types::InputError(path.string() + ": cannot be opened");
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

void write_raw(const fs::path& path, const InjectedProcess& process) {
    ByteWriter writer;
    writer(process, listed(process.recording.node_operations));
    const fs::path temporary = path.string() + ".partial." + std::to_string(getpid());
    write_bytes(temporary, {kMagic, writer.bytes()});
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_to_write(path, "renaming");
}

InjectedProcess read_raw(const fs::path& path) {
    const std::string contents = contents_of(path);
    if (!contents.starts_with(kMagic))
        throw types::InputError(path.string() + ": is no recording of a process by this version of stowage");
    ByteReader reader(std::string_view(contents).substr(kMagic.size()));
    InjectedProcess process;
    std::vector<NodeOperation> nodes;
    try {
        reader(process, nodes);
    } catch (const BrokenBytes& broken) {
        throw types::InputError(path.string() + ": is broken: " + broken.what());
    }
    if (!reader.is_done())
        throw types::InputError(path.string() + ": is broken: something follows byte " +
                                std::to_string(reader.position()));
    for (const NodeOperation& one : nodes) process.recording.node_operations.emplace(one.node, one.operation);
    return process;
}

}  // namespace stowage::profiler
