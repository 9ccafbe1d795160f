//! Loom models of every lock-free protocol in tollgate.
