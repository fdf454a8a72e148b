// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @notice A token that anyone may mint: for devnets and tests only.
contract DevToken is ERC20("VeriLLM devnet credit", "DEV") {
    /// @notice Gives `amount` to `to`.
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}
