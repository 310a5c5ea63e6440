// Breaks one rule between modules of the core, as a mistake in it would, so that a test sees the
// assert that is for it.
#pragma once

namespace kvcanon::faults {

// Do what the name says; returns the exit status of the program, if it comes to that: 0 where
// nothing stopped it, 2 for an unknown name.
int plant(const char* name);

// The names, one a line.
void list_planted();

}  // namespace kvcanon::faults
