#include "reports/version.hpp"

namespace stowage::reports {

const char* const kVersion = STOWAGE_VERSION;

}  // namespace stowage::reports
