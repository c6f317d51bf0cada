//! Whole trees on a real server, with one plate and with several.

#![allow(clippy::disallowed_methods, reason = "a test waits for real threads")]

mod changing;
mod copying;
mod looking;
mod removing;
mod site;
