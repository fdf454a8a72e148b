// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/IWages.sol";
import "../../src/interfaces/Types.sol";
import {HashLib} from "../../src/libraries/HashLib.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Network} from "../Network.sol";
import {Round} from "../Round.sol";
import {Work} from "../Work.sol";

/// @notice A task that another worker did, in a job that went through a public round: the round's word counts.
contract SupersededTest is Round, Work {
    function setUp() public override(Network, Work) {
        Work.setUp();
    }

    function _party(address owner, uint256 items, uint256 number)
        internal
        view
        override(Network, Round)
        returns (Party memory)
    {
        return Round._party(owner, items, number);
    }

    function test_contestTask_byAJobThatItsRoundAccepted_endsTheClaim() public {
        (Case memory c, Given memory given, Made memory made) = _challenged();
        _settle(c);
        _claimLate(given, made);
        network.contestTask(made.commitment, c.posting, c.sealing, c.claiming);
        assertEq(_locked(workers[1]) + _locked(scheduler), 0);
    }

    /// @notice The states were right, the tokens were not: nobody was slashed, and nothing was accepted.
    function test_contestTask_revertsWhereTheCommitteeRejectedTheTokens() public {
        (Case memory c, Given memory given, Made memory made) = _challenged();
        _attest(c, VerdictLib.OUTSIDE_NUCLEUS, 7);
        (Outcome outcome,) = _settle(c);
        assertEq(uint8(outcome), uint8(Outcome.Refund));
        _claimLate(given, made);
        vm.expectRevert(abi.encodeWithSelector(IWages.NotContested.selector, made.commitment));
        network.contestTask(made.commitment, c.posting, c.sealing, c.claiming);
    }

    /// @dev Worker 1's task, done by worker 0: posted, claimed as accepted, challenged and judged by its states.
    function _challenged() private returns (Case memory c, Given memory given, Made memory made) {
        c = _order(2);
        given = _given(0, workers[1], 2, 6, 8, vm.getBlockTimestamp() + 100);
        c.job.requestsRoot = _requestsRoot(given);
        c.id = network.jobIdOf(c.job);
        given.task.taskId = HashLib.taskId(SECRET, c.id, 0);
        _sign(given);
        made = _made(given, 5, keys[workers[1]]);
        _post(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
        _challenge(c);
        _reveal(c);
        _compareAll(c, 15);
        network.adjudicate(c.posting, c.sealing, c.claiming);
    }

    function _claimLate(Given memory given, Made memory made) private {
        pass(uint256(given.task.deadline) + terms.sealWindow - vm.getBlockTimestamp() + 12);
        network.claimTask(
            given.task,
            given.items,
            scheduler,
            1,
            made.inner,
            made.leaves,
            made.outputs,
            [given.signature, made.signature]
        );
    }
}
