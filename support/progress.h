// Progress of a long computation, for a listener that shows it.
#pragma once

#include <string>

namespace kvopt {

/// Receives the progress of a computation. Only one piece of work at a time.
class ProgressListener {
public:
  virtual ~ProgressListener() = default;
  /// Starts work; `what` describes it: "comparing". False while other work is in progress: this
  /// work is then a part of it and reports nothing.
  virtual bool begin(const std::string& what) = 0;
  /// `done` of `total` units of the work are complete; 0 for an unknown number.
  virtual void report(double done, double total) = 0;
  /// Hides the progress until the next report, because something else is printed.
  virtual void hide() = 0;
  virtual void end() = 0;
  /// Called where work, or a part of it, begins, continues or reports, also where `begin` returned
  /// false. May throw to abandon the work.
  virtual void checkpoint() {}
};

/// A piece of work, which ends when this object is destroyed. All units of work should take about
/// equally long. Does nothing without a listener.
class Progress {
public:
  Progress(ProgressListener* listener, const std::string& what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Adds units that are to be done.
  void expect(double units);
  /// Adds units that are done.
  void advance(double units) { advanceTo(done + units); }
  /// Sets the number of units that are done, unless it is already larger.
  void advanceTo(double units);
  /// Declares that all expected units are done, including skipped ones.
  void complete() { advanceTo(total); }
  void hide();

private:
  void report();

  ProgressListener* listener; ///< null: no listener
  bool isPart;                ///< whether other work reports in its place
  double done = 0;
  double total = 0;
};

} // namespace kvopt
