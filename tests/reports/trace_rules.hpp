#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stowage::reports {

/// What a document breaks of the trace event format's rules, as viewers apply them; empty if nothing.
/// Every event has ph, pid, tid and ts; a slice (X) has a name and a duration of at least 0, and slices of one thread
/// nest or lie apart; a counter (C) has numbers only and a name; metadata (M) is of a known kind; an arrow's start (s)
/// and finish (f) come in pairs of one id, the start not later, each on a slice of its thread. Source: "Trace Event
/// Format", Google, 2016.
std::vector<std::string> trace_problems(const nlohmann::json& document);

}  // namespace stowage::reports
