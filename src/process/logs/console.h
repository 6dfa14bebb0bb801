#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace retinue {

/// A descriptor that others share and that may be slow or closed: takes whole lines, as many as it has room for,
/// without waiting.
class Console {
 public:
  /// `written_bytes` counts what it took.
  Console(int fd, std::atomic<std::uint64_t>& written_bytes);

  int fd() const { return fd_; }
  /// Whether nobody reads it any more, or writing failed for good.
  bool is_gone() const { return is_gone_; }
  /// Why it is gone, if that is no usual end; 0 otherwise.
  int error() const { return error_; }
  bool is_pending() const { return !pieces_.empty(); }
  bool has_room() const { return pending_.size() < kRoomBytes; }

  /// Lines that are to go into one write: as many as others' output cannot get into.
  std::size_t piece_bytes() const { return piece_bytes_; }
  /// Whole lines are appended here; then seal() makes them a piece.
  std::string& pending() { return pending_; }
  /// When the piece is written, `shown` becomes `offset`.
  void seal(std::atomic<std::uint64_t>& shown, std::uint64_t offset);
  /// A line of the forwarder's own.
  void add_line(const std::string& line);

  /// Writes what the console takes now. Returns whether it took something.
  bool flush();

 private:
  static constexpr std::size_t kRoomBytes = std::size_t{64} << 10;
  struct Piece {
    std::size_t end;
    std::atomic<std::uint64_t>* shown;
    std::uint64_t offset;
  };

  bool write_some(std::size_t end);
  void close_after(int error);

  int fd_;
  std::atomic<std::uint64_t>& written_bytes_;
  std::size_t piece_bytes_;
  bool is_socket_ = false;
  bool is_gone_ = false;
  int error_ = 0;
  std::string pending_;
  std::size_t written_ = 0;  ///< Of `pending_`.
  std::deque<Piece> pieces_;
};

/// Writes `line` to `fd`, as much of it as is taken; waits at most `patience` at a time for room.
void show_on(int fd, const std::string& line, std::chrono::milliseconds patience);

}  // namespace retinue
