//! Tests of the package from outside: the live picture, and the actions of an operator.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

mod live;
mod operator;
