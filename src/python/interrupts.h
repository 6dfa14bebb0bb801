#pragma once

namespace retinue::python {

/// Runs Python's handlers of the signals that came, which is possible on the main thread only. Returns whether one of
/// them threw, as that of SIGINT does: the wait is to end. Python then throws the handler's exception as soon as it
/// goes on, so a program sees KeyboardInterrupt, and the error of the wait as its context.
bool is_interrupted_by_handler();

}  // namespace retinue::python
