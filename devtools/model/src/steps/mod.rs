//! The steps of the protocol, by who takes them.

pub mod dispatch;
pub mod ends;
pub mod gateway;
pub mod reports;
pub mod restore;
pub mod world;
