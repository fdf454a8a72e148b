// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAppeals} from "../interfaces/IAppeals.sol";
import {Content, JobId, Posting} from "../interfaces/Types.sol";
import {BoundsLib} from "./BoundsLib.sol";
import {HashLib} from "./HashLib.sol";
import {MerkleLib} from "./MerkleLib.sol";
import {TaskLib} from "./TaskLib.sol";

/// @notice What a job was about, in calldata: prompts and outputs under the roots that were signed and posted.
library ContentLib {
    /// @notice Holds one request with its output against both roots of the job; returns the tokens of a task that
    /// runs it once more: prompt‖output without the last token.
    function check(
        Content calldata content,
        Posting memory posting,
        JobId jobId,
        bytes32 secret,
        uint256 request
    ) internal pure returns (uint256 tokens) {
        tokens = (content.tokens.length + content.output.length) / 4 - 1;
        uint256 count = posting.job.requests;
        bool asked = _isWhole(content.tokens)
            && MerkleLib.verify(
                posting.job.requestsRoot, _requestLeaf(content), request, count, content.path
            );
        require(asked, IAppeals.ContentInvalid(request, "request"));
        bytes32 hash = TaskLib.outputHash(HashLib.taskId(secret, jobId, 0), content.output);
        bytes32 leaf = TaskLib.outputLeaf(uint32(request), hash); // below 4096
        bool given = _isWhole(content.output)
            && MerkleLib.verify(posting.outputsRoot, leaf, request, count, content.outputPath);
        require(given, IAppeals.ContentInvalid(request, "output"));
    }

    /// @notice Refuses what no worker can run: whoever is drawn for it would lose its lock for nothing.
    function requireRunnable(
        Content calldata content,
        uint256 request,
        uint32 vocabulary,
        uint32 context
    ) internal pure {
        bytes32 fault = BoundsLib.fault(
            content.sampling, content.tokens.length / 4, content.maxNewTokens, context
        );
        if (content.output.length / 4 > content.maxNewTokens) fault = "newTokens";
        bool known = BoundsLib.areTokens(content.tokens, vocabulary)
            && BoundsLib.areTokens(content.output, vocabulary);
        if (!known) fault = "vocabulary";
        require(fault == 0, IAppeals.ContentOutOfBounds(request, fault));
    }

    function _requestLeaf(Content calldata content) private pure returns (bytes32) {
        return TaskLib.requestLeaf(
            TaskLib.tokensRoot(content.salt, content.tokens),
            uint32(content.tokens.length / 4), // calldata is far shorter
            content.maxNewTokens,
            content.sampling
        );
    }

    /// @dev At least one token, u32 each.
    function _isWhole(bytes calldata tokens) private pure returns (bool) {
        return tokens.length != 0 && tokens.length % 4 == 0;
    }
}
