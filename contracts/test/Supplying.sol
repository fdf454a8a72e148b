// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/IVeriLLM.sol";
import "../src/interfaces/Types.sol";
import {HashLib} from "../src/libraries/HashLib.sol";
import {MerkleLib} from "../src/libraries/MerkleLib.sol";
import {Work} from "./Work.sol";

/// @notice Jobs about any text whatever, up to the question of a re-verification.
abstract contract Supplying is Work {
    address internal requester;
    Content internal _shown;

    function setUp() public virtual override {
        super.setUp();
        requester = person("requester");
        _stake(requester, STAKE);
        for (uint256 i = workers.length; i < 8; ++i) {
            (address worker, uint256 key) = account(string.concat("worker", vm.toString(i)));
            workers.push(worker);
            keys[worker] = key;
            _stake(worker, STAKE);
            vm.prank(worker);
            network.join(modelId, PRICE);
        }
        pass(12);
    }

    /// @dev A request within all bounds, with as long an output as it allows.
    function _sane(uint256 promptTokens, uint256 newTokens) internal pure returns (Content memory) {
        return Content({
            salt: keccak256("salt"),
            tokens: _tokens(promptTokens, 1),
            maxNewTokens: uint32(newTokens),
            sampling: Sampling(1_000_000, 0, 1_000_000, 0),
            path: new bytes32[](0),
            output: _tokens(newTokens, 2),
            outputPath: new bytes32[](0)
        });
    }

    /// @dev A job of this one request with this output, both as signed and posted, and its claim.
    function _claimedJob(Content memory shown) internal returns (Case memory c) {
        _shown = shown;
        c = _order(1);
        bytes32 root = hashes.root(shown.salt, shown.tokens);
        uint32 length = uint32(shown.tokens.length / 4);
        c.job.requestsRoot = hashes.request(
            Asked(root, length, shown.maxNewTokens, shown.sampling, new bytes32[](0))
        );
        c.id = network.jobIdOf(c.job);
        _post(c);
        _seal(c);
        _claim(c, Outcome.Accept, 0);
    }

    function _outputsRoot(Case memory c) internal view override returns (bytes32) {
        bytes32 hash = hashes.output(HashLib.taskId(SECRET, c.id, 0), _shown.output);
        return MerkleLib.leaf(MerkleLib.OUTPUTS, abi.encodePacked(uint32(0), hash));
    }

    function _reverify(Case memory c, Content[] memory contents) internal {
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
    }

    function _all() internal view returns (Content[] memory contents) {
        contents = new Content[](1);
        contents[0] = _shown;
    }
}
