#pragma once

namespace stowage::reports {

/// The version of the project, which every file of ours names.
extern const char* const kVersion;

}  // namespace stowage::reports
