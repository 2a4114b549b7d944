#include "profiler/injection/injection_settings.hpp"

#include <unistd.h>

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace stowage::profiler {
namespace {

using std::chrono::milliseconds;

constexpr const char* kOut = "STOWAGE_INJECT_OUT";
constexpr const char* kKinds = "STOWAGE_INJECT_KINDS";
constexpr const char* kStartMark = "STOWAGE_INJECT_START_MARK";
constexpr const char* kStopMark = "STOWAGE_INJECT_STOP_MARK";
constexpr const char* kAfter = "STOWAGE_INJECT_AFTER_MS";
constexpr const char* kFor = "STOWAGE_INJECT_FOR_MS";

std::string value_of(const Environment& environment, const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
}

std::optional<milliseconds> time_of(const Environment& environment, const char* name) {
    const std::string text = value_of(environment, name);
    if (text.empty()) return std::nullopt;
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || number < 0)
        throw std::invalid_argument(std::string(name) + " is '" + text + "', expected whole milliseconds such as 1500");
    return milliseconds(number);
}

RecordKinds kinds_in(const Environment& environment) {
    const std::string text = value_of(environment, kKinds);
    if (text.empty()) return RecordKinds::all();
    try {
        return kinds_of(text);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string(kKinds) + ": " + error.what());
    }
}

}  // namespace

Environment environment_of(const InjectionSettings& settings) {
    Environment environment;
    environment[kOut] = settings.out;
    if (settings.kinds != RecordKinds::all()) environment[kKinds] = text_of(settings.kinds);
    if (!settings.start_mark.empty()) environment[kStartMark] = settings.start_mark;
    if (!settings.stop_mark.empty()) environment[kStopMark] = settings.stop_mark;
    if (settings.start_after) environment[kAfter] = std::to_string(settings.start_after->count());
    if (settings.record_for) environment[kFor] = std::to_string(settings.record_for->count());
    return environment;
}

std::optional<InjectionSettings> settings_of(const Environment& environment) {
    InjectionSettings settings;
    settings.out = value_of(environment, kOut);
    if (settings.out.empty()) return std::nullopt;
    settings.kinds = kinds_in(environment);
    settings.start_mark = value_of(environment, kStartMark);
    settings.stop_mark = value_of(environment, kStopMark);
    settings.start_after = time_of(environment, kAfter);
    settings.record_for = time_of(environment, kFor);
    return settings;
}

Environment current_environment() {
    Environment environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const std::size_t equals = text.find('=');
        if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return environment;
}

}  // namespace stowage::profiler
