//! Fast CPU operators (SIMD, threads) that follow the contract.
