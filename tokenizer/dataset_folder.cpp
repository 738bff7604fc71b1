#include "keel/tokenizer/dataset_folder.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "keel/base/error.h"
#include "keel/base/files.h"
#include "keel/data/data_manifest.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

std::set<std::string> tokenizer_names(const std::string& main) {
  const std::vector<std::string> names = tokenizer_file_names(main);
  return {names.begin(), names.end()};
}

/// Names of the files that belong to a data set.
std::set<std::string> own_names(const fs::path& folder) {
  const DataManifest manifest = read_data_manifest(folder);
  std::set<std::string> names{kManifestName, kReportName, kTokenizerName};
  if (manifest.tokenizer) names.merge(tokenizer_names(manifest.tokenizer->file));
  for (const DataManifest::Shard& shard : manifest.shards) {
    names.insert(shard.name + ".bin");
    names.insert(shard.name + ".idx");
  }
  return names;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    names.push_back(entry->path().filename().string());
  }
  if (code) throw system_error("cannot read folder", folder, code.value());
  std::sort(names.begin(), names.end());
  return names;
}

void remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw system_error("cannot remove", path, errno);
}

void move_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error("cannot replace", to, errno);
}

dev_t device_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw system_error("cannot read", path, errno);
  return status.st_dev;
}

void replace_file_by_file(const fs::path& from, const fs::path& to) {
  if (device_of(from) != device_of(to)) throw system_error("cannot replace", to, EXDEV);  // before anything is removed
  const std::vector<std::string> names = names_in(from);
  for (const std::string& old_name : own_names(to)) {
    const bool stays = old_name == kManifestName || std::binary_search(names.begin(), names.end(), old_name);
    if (!stays) remove_file(to / old_name);
  }
  move_file(from / kManifestName, to / kManifestName);
  for (const std::string& name : names) {
    if (name != kManifestName) move_file(from / name, to / name);
  }
  sync_directory(to);
}

}  // namespace

std::vector<std::string> foreign_entries(const fs::path& folder) {
  std::error_code absent;
  if (!fs::exists(folder, absent)) return {};
  std::vector<std::string> names = names_in(folder);
  if (names.empty()) return {};
  const std::set<std::string> own = own_names(folder);
  std::erase_if(names, [&](const std::string& name) {
    std::error_code code;
    return own.contains(name) && !fs::is_directory(fs::symlink_status(folder / name, code));
  });
  return names;
}

void require_replaceable(const fs::path& out, bool force) {
  require_absent(out, force);
  std::error_code code;
  const fs::file_status status = fs::status(out, code);
  if (!fs::exists(status)) return;
  std::string why = "not a folder";
  if (fs::is_directory(status)) {
    if (names_in(out).empty()) return;
    try {
      (void)read_data_manifest(out);
      return;
    } catch (const Error& error) {
      why = error.what();
    }
  }
  throw Error(ErrorKind::usage, "not a data set of keel-tokenize, so --force does not replace it", out.string(), why);
}

void publish_dataset(AtomicDirectory& folder, bool force) {
  require_replaceable(folder.path(), force);
  if (!force || foreign_entries(folder.path()).empty()) {
    folder.commit(force);
  } else {
    replace_file_by_file(folder.temporary(), folder.path());
  }
}

}  // namespace keel
