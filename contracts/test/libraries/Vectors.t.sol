// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {DrawLib} from "../../src/libraries/DrawLib.sol";
import {GumbelLib} from "../../src/libraries/GumbelLib.sol";
import {HashLib} from "../../src/libraries/HashLib.sol";
import {MerkleLib} from "../../src/libraries/MerkleLib.sol";
import {OpeningLib} from "../../src/libraries/OpeningLib.sol";
import {PhiloxLib} from "../../src/libraries/PhiloxLib.sol";
import {RecordLib} from "../../src/libraries/RecordLib.sol";
import {StatisticsLib} from "../../src/libraries/StatisticsLib.sol";
import {VerdictLib} from "../../src/libraries/VerdictLib.sol";
import {Test} from "../Test.sol";
import {Trees} from "../Trees.sol";

/// @notice Calldata twins of what the libraries take from calldata.
contract Calls {
    function verify(
        bytes32 root,
        bytes32 leaf,
        uint256 index,
        uint256 count,
        bytes32[] calldata path
    ) external pure returns (bool) {
        return MerkleLib.verify(root, leaf, index, count, path);
    }

    function itemLeaf(ItemLeaf calldata leaf) external pure returns (bytes32) {
        return OpeningLib.itemLeaf(leaf);
    }

    function traceLeaf(Opening calldata opening) external pure returns (bytes32) {
        return OpeningLib.traceLeaf(opening);
    }

    function isFinite(bytes calldata states) external pure returns (bool) {
        return StatisticsLib.isFinite(states);
    }

    function compare(Opening[] calldata openings, ModelSpec calldata spec, uint256 zone)
        external
        pure
        returns (uint64[] memory sums, bool[] memory over)
    {
        return StatisticsLib.compare(openings, spec, zone);
    }
}

/// @notice The files that pytest reads too: both implementations give the same bytes.
contract VectorsTest is Test {
    Calls private _calls = new Calls();
    string private _json;
    uint256[] private _used;

    // ── Randomness ──────────────────────────────────────────────────────────────────────────────

    function test_philox_givesTheVectorsBlocks() public {
        _open("philox.json");
        uint256[] memory counters = _uints(".counters");
        uint256[] memory keys = _uints(".keys");
        uint256[] memory outputs = _uints(".outputs");
        for (uint256 i = 0; i < keys.length / 2; ++i) {
            uint32[4] memory counter;
            for (uint256 j = 0; j < 4; ++j) {
                counter[j] = uint32(counters[4 * i + j]);
            }
            uint32[4] memory found =
                PhiloxLib.block10(counter, [uint32(keys[2 * i]), uint32(keys[2 * i + 1])]);
            for (uint256 j = 0; j < 4; ++j) {
                assertEq(found[j], outputs[4 * i + j]);
            }
        }
    }

    function test_philox_givesTheVectorsWords() public {
        _open("philox.json");
        bytes32[] memory seeds = _words(".seeds");
        uint256[] memory positions = _uints(".positions");
        uint256[] memory ids = _uints(".ids");
        uint256[] memory words = _uints(".words");
        assertGt(seeds.length, 0);
        for (uint256 i = 0; i < seeds.length; ++i) {
            assertEq(PhiloxLib.word(seeds[i], uint32(positions[i]), uint32(ids[i])), words[i]);
        }
    }

    /// @notice A dimension is in the slice iff fewer than `count` have a smaller (word, index).
    function test_philox_givesTheVectorsSlices() public {
        _open("philox.json");
        bytes32[] memory seeds = _words(".sliceSeeds");
        uint256[] memory layers = _uints(".sliceLayers");
        uint256[] memory hiddens = _uints(".sliceHiddens");
        uint256[] memory counts = _uints(".sliceCounts");
        uint256[] memory dimensions = _uints(".sliceDimensions");
        uint256 at = 0;
        for (uint256 i = 0; i < seeds.length; ++i) {
            uint256[] memory words = new uint256[](hiddens[i]);
            for (uint32 d = 0; d < words.length; ++d) {
                words[d] = (uint256(PhiloxLib.sliceWord(seeds[i], uint32(layers[i]), d)) << 32) | d;
            }
            for (uint256 d = 0; d < words.length; ++d) {
                uint256 smaller = 0;
                for (uint256 e = 0; e < words.length; ++e) {
                    if (words[e] < words[d]) ++smaller;
                }
                if (smaller < counts[i]) assertEq(dimensions[at++], d, "ascending");
            }
        }
        assertEq(at, dimensions.length, "all of them");
    }

    function test_gumbel_givesTheVectorsNoise() public {
        _open("gumbel.json");
        uint256[] memory words = _uints(".words");
        int256[] memory values = vm.parseJsonIntArray(_json, ".values");
        assertEq(words.length, values.length);
        for (uint256 i = 0; i < words.length; ++i) {
            assertEq(GumbelLib.gumbel(uint32(words[i])), values[i]);
        }
    }

    function test_fuzz_gumbel_grows(uint32 word) public pure {
        uint256 k = word >> 9;
        if (k == 0) return;
        assertGe(GumbelLib.gumbel(word), GumbelLib.gumbel(uint32((k - 1) << 9)));
    }

    // ── Trees and leaves ────────────────────────────────────────────────────────────────────────

    function test_merkle_givesTheVectorsRoots() public {
        _open("merkle.json");
        uint256[] memory counts = _uints(".counts");
        uint256[] memory depths = _uints(".depths");
        bytes32[] memory roots = _words(".roots");
        bytes32[] memory all = _words(".leaves");
        for (uint256 i = 0; i < counts.length; ++i) {
            bytes32[] memory leaves = new bytes32[](counts[i]);
            for (uint256 j = 0; j < leaves.length; ++j) {
                leaves[j] = all[j];
            }
            assertEq(Trees.root(leaves), roots[i], "root");
            assertEq(MerkleLib.depth(counts[i]), depths[i], "depth");
        }
    }

    function test_merkle_judgesTheVectorsProofs() public {
        _open("merkle.json");
        bytes32[] memory roots = _words(".proofRoots");
        bytes32[] memory leaves = _words(".proofLeaves");
        uint256[] memory indices = _uints(".proofIndices");
        uint256[] memory counts = _uints(".proofCounts");
        bytes[] memory paths = vm.parseJsonBytesArray(_json, ".proofPaths");
        bool[] memory valid = vm.parseJsonBoolArray(_json, ".proofValid");
        uint256 good = 0;
        for (uint256 i = 0; i < roots.length; ++i) {
            bool found = _calls.verify(roots[i], leaves[i], indices[i], counts[i], _split(paths[i]));
            assertEq(found, valid[i], vm.toString(i));
            if (found) ++good;
        }
        assertTrue(good > 0 && good < roots.length, "both kinds");
    }

    function test_leaves_areTheVectors() public {
        _open("leaves.json");
        bytes[] memory slices = vm.parseJsonBytesArray(_json, ".slices");
        bytes[] memory finals = vm.parseJsonBytesArray(_json, ".finals");
        uint256[] memory tokens = _uints(".tokens");
        bytes32[] memory expected = _words(".traceLeaves");
        Opening memory opening;
        opening.inner.taskHash = vm.parseJsonBytes32(_json, ".taskHash");
        opening.leaf = _itemLeaf();
        for (uint256 i = 0; i < slices.length; ++i) {
            opening.position = uint32(i);
            opening.token = uint32(tokens[i]);
            opening.next = uint32(tokens[i + 1]);
            opening.slices = slices[i];
            opening.finalState = finals[i];
            assertEq(_calls.traceLeaf(opening), expected[i], "trace leaf");
        }
        assertEq(Trees.root(expected), opening.leaf.traceRoot, "trace root");
        bytes32 hash = _calls.itemLeaf(opening.leaf);
        assertEq(hash, vm.parseJsonBytes32(_json, ".itemLeafHash"), "item leaf");
        bytes memory payload = abi.encodePacked(
            uint32(vm.parseJsonUint(_json, ".outputRequest")), opening.leaf.outputHash
        );
        assertEq(
            MerkleLib.leaf(MerkleLib.OUTPUTS, payload),
            vm.parseJsonBytes32(_json, ".outputLeafHash"),
            "output leaf"
        );
    }

    function test_leaves_ofRequestsAndTokensAreTheVectors() public {
        _open("leaves.json");
        bytes32[] memory salts = _words(".pieceSalts");
        bytes[] memory pieces = vm.parseJsonBytesArray(_json, ".pieceTokens");
        bytes32[] memory expected = _words(".pieceLeafHashes");
        bytes32 salt = vm.parseJsonBytes32(_json, ".salt");
        for (uint32 i = 0; i < pieces.length; ++i) {
            assertEq(sha256(abi.encodePacked(salt, i)), salts[i], "salt");
            bytes memory payload = abi.encodePacked(salts[i], pieces[i]);
            assertEq(MerkleLib.leaf(MerkleLib.TOKENS, payload), expected[i], "piece");
        }
        bytes32 root = Trees.root(expected);
        assertEq(root, vm.parseJsonBytes32(_json, ".tokensRoot"), "tokens root");
        bytes memory request = abi.encodePacked(
            root,
            uint32(_uints(".requestTokens").length),
            uint32(vm.parseJsonUint(_json, ".requestMaxNewTokens")),
            uint32(vm.parseJsonUint(_json, ".requestSampling.temperature")),
            uint32(vm.parseJsonUint(_json, ".requestSampling.topK")),
            uint32(vm.parseJsonUint(_json, ".requestSampling.topP")),
            uint32(vm.parseJsonUint(_json, ".requestSampling.minP"))
        );
        assertEq(
            MerkleLib.leaf(MerkleLib.REQUESTS, request),
            vm.parseJsonBytes32(_json, ".requestLeafHash"),
            "request"
        );
    }

    // ── Digests and records ─────────────────────────────────────────────────────────────────────

    function test_digests_areTheVectors() public {
        _open("digests.json");
        Quote memory quote = abi.decode(_bytes(".quote.abi"), (Quote));
        Job memory job = abi.decode(_bytes(".job.abi"), (Job));
        assertEq(HashLib.hashQuote(quote), _word(".quote.structHash"), "quote");
        assertEq(HashLib.hashJob(job), _word(".job.structHash"), "job");
        assertEq(HashLib.QUOTE_TYPEHASH, _word(".quote.typeHash"));
        assertEq(HashLib.JOB_TYPEHASH, _word(".job.typeHash"));
        assertEq(HashLib.COMMITMENT_TYPEHASH, _word(".commitment.typeHash"));
        assertEq(HashLib.ATTESTATION_TYPEHASH, _word(".attestation.typeHash"));
        (bytes32 task, bytes32 inner) = abi.decode(_bytes(".commitment.abi"), (bytes32, bytes32));
        assertEq(HashLib.hashCommitment(task, inner), _word(".commitment.structHash"));
        (JobId id, Outcome outcome, uint8 reason, bytes32 bundle) =
            abi.decode(_bytes(".attestation.abi"), (JobId, Outcome, uint8, bytes32));
        assertEq(
            HashLib.hashAttestation(id, outcome, reason, bundle), _word(".attestation.structHash")
        );
        bytes32 digest =
            keccak256(abi.encodePacked(hex"1901", _word(".separator"), _word(".job.structHash")));
        assertEq(digest, _word(".jobId"), "job id");
        assertEq(digest, JobId.unwrap(id), "of the attestation, too");
        assertEq(HashLib.drawCommit(_word(".secret")), _word(".drawCommit"));
        bytes32[] memory tasks = _words(".taskIds");
        for (uint256 k = 0; k < tasks.length; ++k) {
            assertEq(HashLib.taskId(_word(".secret"), JobId.wrap(digest), k), tasks[k]);
        }
    }

    function test_records_areTheVectors() public {
        _open("digests.json");
        Inner memory inner = abi.decode(_bytes(".inner.abi"), (Inner));
        assertEq(HashLib.hashInner(inner), _word(".innerHash"), "inner");
        ModelSpec memory spec = abi.decode(_bytes(".spec.abi"), (ModelSpec));
        assertEq(keccak256(abi.encode(spec)), _word(".modelId"), "model");
        Posting memory posting = abi.decode(_bytes(".posting.abi"), (Posting));
        Sealing memory sealing = abi.decode(_bytes(".sealing.abi"), (Sealing));
        Claiming memory claiming = abi.decode(_bytes(".claiming.abi"), (Claiming));
        bytes32 record = RecordLib.posted(posting);
        assertEq(record, _word(".postedRecord"), "posted");
        record = RecordLib.sealedRecord(record, sealing);
        assertEq(record, _word(".sealedRecord"), "sealed");
        assertEq(RecordLib.claimed(record, claiming), _word(".claimedRecord"), "claimed");
    }

    // ── Draws ───────────────────────────────────────────────────────────────────────────────────

    function test_draws_areTheVectors() public {
        _open("draws.json");
        bytes32[] memory secrets = _words(".secrets");
        bytes32[] memory commitments = _words(".commitments");
        bytes32[] memory beacons = _words(".beacons");
        bytes32[] memory draws = _words(".draws");
        bytes32[] memory seeds = _words(".positionSeeds");
        for (uint256 i = 0; i < draws.length; ++i) {
            assertEq(DrawLib.draw(secrets[i], commitments[i], beacons[i]), draws[i]);
            assertEq(DrawLib.positionSeed(commitments[i], beacons[i]), seeds[i]);
        }
    }

    function test_seats_areTheVectors() public {
        _open("draws.json");
        bytes32[] memory draws = _words(".seatDraws");
        uint256[] memory slots = _uints(".seatSlotCounts");
        address[] memory table = vm.parseJsonAddressArray(_json, ".seatOwners");
        address[] memory inferencers = vm.parseJsonAddressArray(_json, ".seatInferencers");
        uint256[] memory sizes = _uints(".seatCommittees");
        uint256[] memory counts = _uints(".seatFoundCounts");
        uint256[] memory found = _uints(".seatFound");
        uint256 from = 0;
        uint256 at = 0;
        for (uint256 i = 0; i < draws.length; ++i) {
            address[] memory owners = new address[](sizes[i]);
            uint256 n = 0;
            for (uint256 j = 0; n < sizes[i] && j < DrawLib.MAX_STEPS; ++j) {
                uint256 slot = DrawLib.slot(draws[i], j, slots[i]);
                address owner = table[from + slot];
                bool eligible = DrawLib.isEligible(owner, 1, 0, 2);
                if (!eligible || owner == inferencers[i]) continue;
                if (DrawLib.isDrawn(owners, n, owner)) continue;
                if (counts[i] != 0) assertEq(found[at + n], slot, "slot");
                owners[n++] = owner;
            }
            assertEq(n == sizes[i], counts[i] != 0, "exhausted or not");
            from += slots[i];
            at += counts[i];
        }
    }

    function test_checkedRequestsAndPositions_areTheVectors() public {
        _open("draws.json");
        bytes32[] memory seeds = _words(".checkedDraws");
        uint256[] memory requests = _uints(".checkedRequests");
        uint256[] memory wanted = _uints(".checkedWanted");
        uint256[] memory counts = _uints(".checkedFoundCounts");
        uint256[] memory found = _uints(".checkedFound");
        uint256 at = 0;
        for (uint256 i = 0; i < seeds.length; ++i) {
            uint16[] memory drawn = DrawLib.checkedRequests(seeds[i], requests[i], wanted[i]);
            assertEq(drawn.length, counts[i]);
            for (uint256 j = 0; j < drawn.length; ++j) {
                assertEq(drawn[j], found[at++]);
            }
        }
        _positions();
    }

    function _positions() private view {
        bytes32[] memory seeds = _words(".positionDraws");
        uint256[] memory requests = _uints(".positionRequests");
        uint256[] memory prompts = _uints(".positionPrompts");
        uint256[] memory outputs = _uints(".positionOutputs");
        uint256[] memory wanted = _uints(".positionWanted");
        uint256[] memory found = _uints(".positionFound");
        uint256 at = 0;
        for (uint256 i = 0; i < seeds.length; ++i) {
            uint32[] memory drawn =
                DrawLib.positions(seeds[i], requests[i], prompts[i], outputs[i], wanted[i]);
            assertEq(drawn.length, DrawLib.positionCount(prompts[i], outputs[i], wanted[i]));
            for (uint256 j = 0; j < drawn.length; ++j) {
                assertEq(drawn[j], found[at++]);
            }
        }
        assertEq(at, found.length);
    }

    // ── Distances and verdicts ──────────────────────────────────────────────────────────────────

    function test_quantise_givesTheVectors() public {
        _open("distances.json");
        uint256[] memory bits = _uints(".quantiseBits");
        int256[] memory scales = vm.parseJsonIntArray(_json, ".quantiseScales");
        int256[] memory values = vm.parseJsonIntArray(_json, ".quantised");
        for (uint256 i = 0; i < bits.length; ++i) {
            assertEq(StatisticsLib.quantise(bits[i], scales[i]), values[i]);
        }
    }

    function test_distances_areTheVectors() public {
        _open("distances.json");
        bytes[] memory x = vm.parseJsonBytesArray(_json, ".x");
        bytes[] memory y = vm.parseJsonBytesArray(_json, ".y");
        int256[] memory scales = vm.parseJsonIntArray(_json, ".scales");
        bool[] memory finite = vm.parseJsonBoolArray(_json, ".finite");
        uint256[] memory distances = _uints(".distances");
        for (uint256 i = 0; i < x.length; ++i) {
            assertEq(_calls.isFinite(x[i]) && _calls.isFinite(y[i]), finite[i], "finite");
            if (finite[i]) assertEq(_distance(x[i], y[i], scales[i]), distances[i], "distance");
        }
    }

    /// @dev Through `compare`: with med 10^6 and a cap that is never met the ratio is the distance.
    function _distance(bytes memory x, bytes memory y, int256 scale)
        private
        view
        returns (uint256)
    {
        Opening[] memory openings = new Opening[](2);
        openings[0].finalState = x;
        openings[1].finalState = y;
        ModelSpec memory spec;
        spec.hidden = uint32(x.length / 2);
        spec.profile.layers = new LayerProfile[](1);
        spec.profile.layers[0].scale = int8(scale);
        spec.profile.layers[0].med[1] = 1_000_000;
        spec.profile.layers[0].cap[1] = 3_000_000;
        (uint64[] memory sums,) = _calls.compare(openings, spec, 1);
        return sums[0];
    }

    function test_zones_areTheVectors() public {
        _open("distances.json");
        uint256[] memory positions = _uints(".zonePositions");
        uint256[] memory prompts = _uints(".zonePrompts");
        uint256[] memory zones = _uints(".zones");
        for (uint256 i = 0; i < zones.length; ++i) {
            assertEq(StatisticsLib.zone(positions[i], prompts[i]), zones[i]);
        }
    }

    /// @notice Every case that comes to the cliques.
    function test_verdicts_areTheVectors() public {
        _open("verdicts.json");
        uint256[] memory members = _uints(".members");
        uint256[] memory statuses = _uints(".statuses");
        uint256[] memory requests = _uints(".requests");
        uint256[] memory outcomes = _uints(".outcomes");
        uint256[] memory reasons = _uints(".reasons");
        uint256[] memory paid = _uints(".paid");
        uint256 party = 0;
        uint256 pair = 0;
        uint256 judged = 0;
        for (uint256 i = 0; i < members.length; ++i) {
            (VerdictLib.Relations memory relations, bool mismatched) =
                _relations(statuses, party, members[i], pair, requests[i]);
            bool decided = reasons[i] == VerdictLib.WITHHELD || reasons[i] == VerdictLib.NON_FINITE
                || reasons[i] == VerdictLib.TOO_FEW_POSITIONS;
            if (!decided) {
                (Outcome outcome, uint8 reason, uint256 found) = VerdictLib.judge(relations);
                if (reason == VerdictLib.NO_CLIQUE && mismatched) {
                    reason = VerdictLib.TASK_MISMATCH;
                }
                assertEq(uint8(outcome), outcomes[i], "outcome");
                assertEq(reason, reasons[i], "reason");
                assertEq(found, paid[i], "paid");
                ++judged;
            }
            party += members[i] + 1;
            pair += members[i] * (members[i] + 1) / 2;
        }
        assertGt(judged, 200);
    }

    function _relations(
        uint256[] memory statuses,
        uint256 party,
        uint256 size,
        uint256 pair,
        uint256 requests
    ) private returns (VerdictLib.Relations memory relations, bool mismatched) {
        if (_used.length == 0) {
            uint256[] memory sums = _uints(".sums");
            uint256[] memory cells = _uints(".cells");
            uint256[] memory overs = _uints(".overs");
            for (uint256 i = 0; i < sums.length; ++i) {
                _used.push((sums[i] << 64) | (cells[i] << 32) | overs[i]);
            }
        }
        relations.adjacency = new uint256[](size);
        for (uint256 k = 1; k <= size; ++k) {
            if (statuses[party + k] == 0) relations.good |= 1 << (k - 1);
            if (statuses[party + k] == 3) mismatched = true;
        }
        for (uint256 a = 0; a <= size; ++a) {
            for (uint256 b = a + 1; b <= size; ++b) {
                uint256 packed = _used[pair++];
                PairStatistics memory sums =
                    PairStatistics(uint64(packed >> 64), uint32(packed >> 32), uint32(packed));
                uint256 positions = sums.cells / 3;
                uint256 refundMean =
                    VerdictLib.meanOf(positions, 20 * requests, 1_600_000, 1_300_000);
                uint256 slashMean =
                    VerdictLib.meanOf(positions, 20 * requests, 2_400_000, 2_000_000);
                bool refund = VerdictLib.agree(sums, refundMean, 3);
                bool slash = VerdictLib.agree(sums, slashMean, 6);
                if (a == 0) {
                    if (refund) relations.refundTier |= 1 << (b - 1);
                    if (slash) relations.slashTier |= 1 << (b - 1);
                } else if (refund) {
                    relations.adjacency[a - 1] |= 1 << (b - 1);
                    relations.adjacency[b - 1] |= 1 << (a - 1);
                }
            }
        }
    }

    // ── Plain twins ─────────────────────────────────────────────────────────────────────────────

    function test_fuzz_isFinite_equalsItsPlainTwin(bytes32 word) public view {
        bool finite = true;
        for (uint256 lane = 0; lane < 16; ++lane) {
            if ((uint256(word) >> (16 * lane + 7)) & 0xff == 0xff) finite = false;
        }
        assertEq(_calls.isFinite(abi.encodePacked(word)), finite);
    }

    function test_fuzz_isFinite_seesAnyOneLane(bytes32 word, uint8 lane) public view {
        uint256 mask = uint256(0x7f80) << (16 * (lane % 16));
        assertFalse(_calls.isFinite(abi.encodePacked(uint256(word) | mask)));
    }

    function test_fuzz_quantise_equalsItsPlainTwin(uint16 bits, int8 scale) public pure {
        scale = int8(bound(int256(scale), -40, 40));
        uint256 exponent = (bits >> 7) & 0xff;
        int256 expected = 0;
        if (exponent != 0) {
            // The magnitude times 2^300, rounded at 2^300 and clamped.
            int256 power = int256(exponent) - 134 - scale;
            uint256 magnitude = 128 + (bits & 0x7f);
            if (power >= 9) {
                magnitude = 1 << 15;
            } else if (power < -9) {
                magnitude = 0;
            } else {
                magnitude = ((magnitude << uint256(power + 9)) + 256) >> 9;
                if (magnitude > 1 << 15) magnitude = 1 << 15;
            }
            expected = bits >> 15 == 0 ? int256(magnitude) : -int256(magnitude);
        }
        assertEq(StatisticsLib.quantise(bits, scale), expected);
    }

    function test_fuzz_merkle_provesEveryLeafAndNoOther(uint8 count, uint8 index, bytes32 salt)
        public
        view
    {
        count = uint8(bound(count, 1, 40));
        index = uint8(bound(index, 0, count - 1));
        bytes32[] memory leaves = new bytes32[](count);
        for (uint256 i = 0; i < count; ++i) {
            leaves[i] = keccak256(abi.encode(salt, i));
        }
        bytes32 root = Trees.root(leaves);
        bytes32[] memory path = Trees.path(leaves, index);
        assertTrue(_calls.verify(root, leaves[index], index, count, path));
        assertFalse(_calls.verify(root, keccak256("other"), index, count, path));
        assertFalse(_calls.verify(root, leaves[index], count, count, path));
    }

    // ── Reading ─────────────────────────────────────────────────────────────────────────────────

    function _open(string memory file) private {
        _json = vectors(file);
    }

    function _uints(string memory key) private view returns (uint256[] memory) {
        return vm.parseJsonUintArray(_json, key);
    }

    function _words(string memory key) private view returns (bytes32[] memory) {
        return vm.parseJsonBytes32Array(_json, key);
    }

    function _word(string memory key) private view returns (bytes32) {
        return vm.parseJsonBytes32(_json, key);
    }

    function _bytes(string memory key) private view returns (bytes memory) {
        return vm.parseJsonBytes(_json, key);
    }

    function _itemLeaf() private view returns (ItemLeaf memory) {
        return ItemLeaf(
            uint32(vm.parseJsonUint(_json, ".itemLeaf.item")),
            uint32(vm.parseJsonUint(_json, ".itemLeaf.promptTokens")),
            uint32(vm.parseJsonUint(_json, ".itemLeaf.newTokens")),
            _word(".itemLeaf.traceRoot"),
            _word(".itemLeaf.outputHash")
        );
    }

    function _split(bytes memory path) private pure returns (bytes32[] memory siblings) {
        siblings = new bytes32[](path.length / 32);
        for (uint256 i = 0; i < siblings.length; ++i) {
            bytes32 sibling;
            for (uint256 j = 0; j < 32; ++j) {
                sibling |= bytes32(path[32 * i + j]) >> (8 * j);
            }
            siblings[i] = sibling;
        }
    }
}
