//! Rules of the project's own files that the compiler does not check.

mod sources;

mod architecture;
mod documentation;
mod language;
