#pragma once

// Who may include whom.
//
// The tree is the architecture: a folder's name says what its code may use. This reads the #include lines of every
// source file and compares them with one table (`allowed_uses`, the single place to change when a folder gains a
// right). It is a grep, not a compiler: includes under #if count too, and that is wanted.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace stowage::architecture {

/// An include that points where its folder must not look.
struct Violation {
    std::string file;  ///< relative to the root, with forward slashes
    int line = 0;      ///< from 1; 0 when the file as a whole is meant
    std::string why;

    friend bool operator==(const Violation&, const Violation&) = default;
};

/// `file:line: why`, as compilers say it.
std::string to_string(const Violation& violation);

/// The folder of the architecture that a file belongs to ("planner/memory"; "reports" where leaves do not count), or
/// empty when the table knows none.
std::string folder_of(const std::string& file);

/// What a folder may include besides itself. Throws: std::out_of_range for a folder the table does not know.
std::set<std::string> allowed_uses(const std::string& folder);

/// Every violation below `root`, ordered by file and line. Folders that hold no source (hidden ones, build*, out, docs)
/// are passed over. Cost: reads each source file once.
std::vector<Violation> find_violations(const std::filesystem::path& root);

/// How many source files `find_violations` reads: a check that looks at nothing finds nothing.
std::size_t count_sources(const std::filesystem::path& root);

}  // namespace stowage::architecture
