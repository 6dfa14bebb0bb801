#include "python/backend/caller_site.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "python/backend/interpreter.h"

namespace retinue::python {
namespace {

/// Of an object that this holds; null is none.
template <typename Type>
class Held {
 public:
  explicit Held(Type* object) : object_(object) {}
  ~Held() { reset(nullptr); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Type* get() const { return object_; }
  void reset(Type* object) {
    if (object_ != nullptr) interpreter().release_object(object_);
    object_ = object;
  }

 private:
  Type* object_;
};

/// Guarded by the interpreter's lock.
std::vector<std::string>& library_folders() {
  static auto* const folders = new std::vector<std::string>;
  return *folders;
}

/// Never freed: a CallSite keeps the pointer. There are as many as there are source files that call c10d.
const char* kept(std::string_view file) {
  static auto* const mutex = new std::mutex;
  static auto* const files = new std::set<std::string, std::less<>>;
  const std::lock_guard lock(*mutex);
  auto found = files->find(file);
  if (found == files->end()) found = files->emplace(file).first;
  return found->c_str();
}

/// Whether that is no place of the program: a function of a library, or one without a file.
bool is_inner(std::string_view file) {
  return file.starts_with('<') || std::any_of(library_folders().begin(), library_folders().end(),
                                              [&](const std::string& folder) { return file.starts_with(folder); });
}

}  // namespace

std::optional<CallSite> caller_site() {
  if (!is_python_thread()) return std::nullopt;
  const Interpreter& python = interpreter();
  const GilScope gil;
  Frame* const newest = python.newest_frame();
  if (newest != nullptr) python.retain(newest);
  for (Held frame(newest); frame.get() != nullptr; frame.reset(python.caller_of(frame.get()))) {
    const Held code(python.code_of(frame.get()));
    const Held name(python.attribute(code.get(), "co_filename"));
    std::ptrdiff_t bytes = 0;
    const char* const text = name.get() == nullptr ? nullptr : python.text_of(name.get(), &bytes);
    if (text == nullptr) {
      python.clear_error();
      return std::nullopt;
    }
    const std::string_view file(text, static_cast<std::size_t>(bytes));
    if (is_inner(file)) continue;
    return CallSite(kept(file), static_cast<unsigned>(python.line_of(frame.get())));
  }
  return std::nullopt;
}

void set_library_folders(std::vector<std::string> folders) {
  const GilScope gil;
  library_folders() = std::move(folders);
}

}  // namespace retinue::python
