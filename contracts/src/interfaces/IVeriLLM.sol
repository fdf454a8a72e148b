// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAppeals} from "./IAppeals.sol";
import {IRecourse} from "./IRecourse.sol";
import {ISummons} from "./ISummons.sol";
import {IVeriLLMCore} from "./IVeriLLMCore.sol";
import {IWages} from "./IWages.sol";

// solhint-disable no-empty-blocks
/// @title VeriLLM: stakes, jobs and verdicts of a verifiable inference network
/// @notice The byte-exact protocol is docs/protocol.md.
/// @dev Assumptions. (1) A job's scheduler does not also choose the hash of the blocks that hold its `post` and `seal`; together they could steer a draw. (2) Whoever is judged can send a
///      transaction within `openingWindow`. (3) At least one honest party looks at each claim within `disputeWindow`; silence assents. (4) Of the drawn committee, fewer than ⌈(m+1)/2⌉ collude. (5) `token` is
///      a plain ERC-20 without fees on transfer or rebasing; balance deltas are checked. No key, of anyone, can move another party's funds.
interface IVeriLLM is IVeriLLMCore, IRecourse, ISummons, IWages, IAppeals {}
