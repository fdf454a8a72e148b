// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

/// @title A contract whose code VeriLLM runs on its own storage
/// @notice Fixed at deployment like the code itself; docs/protocol.md §6.
interface IExtension {
    /// @notice The terms are not those of the contract that runs it.
    error TermsMismatch(bytes32 expected, bytes32 actual);
    /// @notice No contract of the chain has this function.
    error FunctionUnknown(bytes4 selector);

    /// @notice Hash of the terms that it was compiled in with, without `recourse`.
    function termsHash() external view returns (bytes32);
}
