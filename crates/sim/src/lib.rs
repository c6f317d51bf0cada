//! A cluster of real engines in one thread on a simulated world, made from a seed.
