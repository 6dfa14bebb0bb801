#pragma once

#include <cstddef>
#include <span>

/// What reads bytes that another process wrote, each with a job around it that is the same for every input. A target
/// returns where the input was decoded, or refused by one of the errors that its decoder names; everything else, as a
/// block that lies outside of job memory, ends the process.
namespace retinue::fuzz {

using Bytes = std::span<const std::byte>;

void archive(Bytes input);         ///< Values of many types from archives: arguments, returned values, messages.
void message(Bytes input);         ///< Values from messages as they lie in memory.
void queue(Bytes input);           ///< A queue whose block was overwritten.
void simple_queue(Bytes input);    ///< A SimpleQueue of which a part was overwritten.
void pipe(Bytes input);            ///< An end of a pipe whose block was overwritten.
void shared_objects(Bytes input);  ///< Locks, barriers, values and their like whose blocks were overwritten.
void start_request(Bytes input);   ///< What the guardian and ranks read of a start.
void crash_record(Bytes input);    ///< A dead rank's slot.
void error_file(Bytes input);      ///< An error file that a program wrote.
void job_socket(Bytes input);      ///< What others send to a job's socket.
void job_view(Bytes input);        ///< Another job's tables, as `retinue ps` reads them.
void store_server(Bytes input);    ///< What members and strangers say to a TcpStore's server.
void store_client(Bytes input);    ///< What a server says to a TcpStore.
void store_file(Bytes input);      ///< A FileStore's file.
void recording(Bytes input);       ///< What a process keeps of its last calls, and what is made of it.
void progress(Bytes input);        ///< What a process tells of its training.
void tensor(Bytes input);          ///< A tensor out of a message. In builds with LibTorch.

struct Target {
  const char* name;
  void (*run)(Bytes input);
};
inline constexpr Target kTargets[] = {
    {"archive", archive},
    {"message", message},
    {"queue", queue},
    {"simple_queue", simple_queue},
    {"pipe", pipe},
    {"shared_objects", shared_objects},
    {"start_request", start_request},
    {"crash_record", crash_record},
    {"error_file", error_file},
    {"job_socket", job_socket},
    {"job_view", job_view},
    {"store_server", store_server},
    {"store_client", store_client},
    {"store_file", store_file},
    {"recording", recording},
    {"progress", progress},
};

}  // namespace retinue::fuzz
