#include "reports/trace_events.hpp"

namespace stowage::reports {
namespace {

constexpr std::size_t kFlushAt = 1 << 20;

}  // namespace

EventWriter::EventWriter(OutputFile& file) : file_(file) { text("{\"displayTimeUnit\":\"ms\",\"traceEvents\":["); }

TraceSize EventWriter::finish() {
    text("\n]}\n");
    flush();
    return size_;
}

void EventWriter::flush_if_long() {
    if (buffer_.size() >= kFlushAt) flush();
}

void EventWriter::flush() {
    file_.write({buffer_.data(), buffer_.size()});
    size_.bytes += types::Bytes{static_cast<std::int64_t>(buffer_.size())};
    buffer_.clear();
}

std::string json_string(std::string_view text) {
    std::string result = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') result += '\\';
        if (static_cast<unsigned char>(letter) < 0x20)
            result += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
        else
            result += letter;
    }
    return result + '"';
}

}  // namespace stowage::reports
