#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/files/file_descriptor.h"
#include "os/sockets/event_poll.h"
#include "store/store_service.h"
#include "store/store_session.h"

namespace retinue {

struct TcpServerOptions {
  std::string token;
  std::uint64_t max_frame_bytes = 0;
  std::chrono::milliseconds handshake_timeout;
  /// Who connects while so many haven't proved themselves waits in the kernel's queue, until the oldest of them has had
  /// half a second.
  std::size_t max_strangers = 256;
};

/// The thread that serves a TcpStore: one loop over events, which waits for no client.
class TcpServer {
 public:
  /// `listening` doesn't block. Errors: SystemError.
  TcpServer(FileDescriptor listening, TcpServerOptions options);
  /// Ends the thread, then all connections.
  ~TcpServer();

 private:
  using Client = StoreService::Client;
  using Now = StoreService::Now;

  struct Connection {
    FileDescriptor socket;
    StoreSession session;
    std::string output = {};
    std::size_t sent = 0;
    EventPoll::Interest interest = EventPoll::Interest::kRead;
    Now handshake_end = {};
  };

  void run();
  void turn();
  void accept_all(Now now);
  void open(FileDescriptor socket);
  void set_accepting(Now now);
  void serve(Client client, Now now);
  void read(Client client, Connection& connection, Now now);
  /// False: the connection is broken.
  bool send(Client client, Connection& connection, std::string_view bytes);
  bool flush(Client client, Connection& connection);
  void set_interest(Client client, Connection& connection, EventPoll::Interest interest);
  void send_answers();
  void drop(Client client);
  /// Of those that there are.
  Now end_of_oldest_stranger() const;
  void drop_late_strangers(Now now);

  FileDescriptor listening_;
  TcpServerOptions options_;
  ServerSide side_;
  StoreService service_;
  EventPoll poll_;
  std::unordered_map<Client, Connection> connections_;
  std::set<std::pair<Now, Client>> strangers_;  ///< By the end of their time.
  Client last_client_ = 0;
  bool accepts_ = true;
  Now accepts_again_ = {};  ///< Not before: there were no descriptors.
  std::vector<char> room_;
  std::atomic<bool> is_stopped_ = false;  ///< Written before the bell rings, read after it was heard.
  std::thread thread_;
};

}  // namespace retinue
