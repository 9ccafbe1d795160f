//! What the experiments and the benches share.
