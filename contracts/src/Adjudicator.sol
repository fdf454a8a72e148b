// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAdjudicator, Verdict} from "./interfaces/IAdjudicator.sol";
import {ILedger} from "./interfaces/ILedger.sol";
import {IVeriLLM} from "./interfaces/IVeriLLM.sol";
import {
    Checked,
    Claiming,
    ItemLeaf,
    JobId,
    ModelId,
    ModelSpec,
    Opening,
    Outcome,
    PairStatistics,
    Posting,
    Sealing
} from "./interfaces/Types.sol";
import {DrawLib} from "./libraries/DrawLib.sol";
import {MerkleLib} from "./libraries/MerkleLib.sol";
import {OpeningLib} from "./libraries/OpeningLib.sol";
import {RecordLib} from "./libraries/RecordLib.sol";
import {SpecLib} from "./libraries/SpecLib.sol";
import {StatisticsLib} from "./libraries/StatisticsLib.sol";
import {VerdictLib} from "./libraries/VerdictLib.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {BitMaps} from "@openzeppelin/contracts/utils/structs/BitMaps.sol";

/// @title Adjudicator
/// @notice The public round: openings in calldata, sums in storage, the verdict from the sums.
/// @dev Parties are numbered 0 (the inferencer), 1..m (the committee in drawn order). Nobody votes: whoever
/// calls, only openings under sealed commitments count.
contract Adjudicator is IAdjudicator {
    using BitMaps for BitMaps.BitMap;

    /// @dev What verdicts need of a model; it follows from the id, so it is the same for all networks.
    /// `layers` counts the final norm and is non-zero iff the model is known.
    struct Check {
        uint16 layers;
        uint16 checkedRequests;
        uint16 positions;
        uint16 minPositions;
        uint16 overRefund;
        uint16 overSlash;
        uint32 meanRefund;
        uint32 meanSlash;
        uint16 manyPositions;
        uint32 meanRefundMany;
        uint32 meanSlashMany;
        uint8 committee;
    }

    /// @dev Bit p of a mask is party p: the inferencer, at most 7 members and, in a re-verification, as many of the
    /// first committee behind them. `positions` counts those of all revealed requests, `served` those that a party
    /// opened. Bit maps hold 64 bits for each checked request.
    struct Round {
        uint40 revealBy;
        uint40 openBy;
        uint40 compareBy;
        uint8 revealed;
        uint16 positions;
        uint16 nonFinite;
        uint16 mismatched;
        JobId jobId;
        uint16[16] served;
        mapping(uint256 checkedIndex => Lengths) lengths;
        mapping(uint256 party => BitMaps.BitMap) openings;
        mapping(uint256 pair => BitMaps.BitMap) compared;
        mapping(uint256 pair => PairStatistics) statistics;
    }

    /// @dev Of a checked request, as the inferencer committed to them; zero until revealed.
    struct Lengths {
        uint32 promptTokens;
        uint32 newTokens;
    }

    mapping(ModelId => Check) private _checks;
    mapping(address network => mapping(bytes32 record => Round)) private _rounds;

    // ── Before and after a round ────────────────────────────────────────────────────────────────

    /// @inheritdoc IAdjudicator
    function registerModel(bytes calldata encoded)
        external
        returns (
            ModelId modelId,
            uint96 seatStake,
            uint8 committee,
            uint32 vocabulary,
            uint32 context
        )
    {
        ModelSpec memory spec = abi.decode(encoded, (ModelSpec));
        SpecLib.requireSane(spec);
        bytes32 hash = keccak256(abi.encode(spec));
        require(keccak256(encoded) == hash, SpecNotCanonical());
        modelId = ModelId.wrap(hash);
        (seatStake, committee) = (spec.seatStake, spec.committee);
        (vocabulary, context) = (spec.vocabulary, spec.context);
        _checks[modelId] = Check({
            layers: uint16(spec.profile.layers.length), // at most 33
            checkedRequests: spec.checkedRequests,
            positions: spec.positions,
            minPositions: spec.profile.minPositions,
            overRefund: spec.profile.overRefund,
            overSlash: spec.profile.overSlash,
            meanRefund: spec.profile.meanRefund,
            meanSlash: spec.profile.meanSlash,
            manyPositions: spec.profile.manyPositions,
            meanRefundMany: spec.profile.meanRefundMany,
            meanSlashMany: spec.profile.meanSlashMany,
            committee: spec.committee
        });
    }

    /// @inheritdoc IAdjudicator
    function open(JobId jobId, bytes32 record, uint40 revealBy, uint40 openBy, uint40 compareBy)
        external
    {
        Round storage round = _rounds[msg.sender][record];
        round.jobId = jobId;
        round.revealBy = revealBy;
        round.openBy = openBy;
        round.compareBy = compareBy;
    }

    // ── The round ───────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IAdjudicator
    function reveal(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        uint16 checkedIndex,
        ItemLeaf calldata leaf,
        bytes32[] calldata itemPath
    ) external {
        Round storage round = _roundOf(network, posting, sealing, claiming);
        require(block.timestamp < round.revealBy, DeadlinePassed(round.revealBy));
        Check storage model = _checks[posting.quote.modelId];
        uint256 request = _drawn(posting, sealing, checkedIndex, model.checkedRequests);
        bool included = leaf.item == request
            && MerkleLib.verify(
                sealing.inner.itemsRoot,
                OpeningLib.itemLeaf(leaf),
                request,
                sealing.inner.items,
                itemPath
            );
        require(included, OpeningInvalid(0, "item"));
        // Lengths that no trace can have are as good as none.
        bool possible = leaf.promptTokens != 0 && leaf.newTokens != 0
            && uint256(leaf.promptTokens) + leaf.newTokens <= type(uint32).max;
        require(possible, OpeningInvalid(0, "lengths"));
        Lengths storage lengths = round.lengths[checkedIndex];
        require(lengths.newTokens == 0, AlreadyRevealed(checkedIndex));
        lengths.promptTokens = leaf.promptTokens;
        lengths.newTokens = leaf.newTokens;
        ++round.revealed;
        // At most 16 requests of 64 positions.
        round.positions += uint16(
            DrawLib.positionCount(leaf.promptTokens, leaf.newTokens, model.positions)
        );
        emit Revealed(round.jobId, checkedIndex, leaf.promptTokens, leaf.newTokens);
    }

    /// @inheritdoc IAdjudicator
    function serve(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        Checked calldata checked,
        uint16 positionIndex,
        Opening calldata opening
    ) external {
        Round storage round = _roundOf(network, posting, sealing, claiming);
        OpeningLib.Place memory place =
            _placeOf(round, posting, sealing, claiming.beacon, spec, checked, positionIndex);
        if (OpeningLib.check(opening, place, sealing, spec)) {
            // Nothing below the item was checked, nor has it to be.
            require(block.timestamp < round.openBy, DeadlinePassed(round.openBy));
            _markMismatched(round, opening.party, place.checkedIndex);
        } else {
            _take(round, place, opening);
        }
    }

    /// @inheritdoc IAdjudicator
    function compare(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        ModelSpec calldata spec,
        Checked calldata checked,
        uint16 positionIndex,
        Opening[] calldata openings
    ) external {
        Round storage round = _roundOf(network, posting, sealing, claiming);
        OpeningLib.Place memory place =
            _placeOf(round, posting, sealing, claiming.beacon, spec, checked, positionIndex);
        for (uint256 i = 0; i < openings.length; ++i) {
            Opening calldata opening = openings[i];
            require(
                i == 0 || opening.party > openings[i - 1].party, PartiesNotAscending(opening.party)
            );
            bool mismatched = OpeningLib.check(opening, place, sealing, spec);
            // A mismatched item has no such position to compare: serve it alone.
            require(!mismatched, OpeningInvalid(opening.party, "mismatched"));
            _take(round, place, opening);
            if (openings[0].party == 0 && opening.token != openings[0].token) {
                _markMismatched(round, opening.party, place.checkedIndex);
            }
        }
        _addPairs(round, place, spec, openings);
    }

    /// @inheritdoc IAdjudicator
    function verdict(bytes32 record, ModelId modelId, uint256 requests, uint256 size)
        external
        view
        returns (Verdict memory)
    {
        Round storage round = _rounds[msg.sender][record];
        Check storage model = _checks[modelId];
        uint8 members = uint8((1 << size) - 1); // at most 7
        uint16 parties = uint16((2 << size) - 1); // witnesses beyond them decide nothing
        if (round.revealed < Math.min(requests, model.checkedRequests)) {
            // No positions exist yet, so nobody else is late.
            require(block.timestamp >= round.revealBy, DeadlineNotReached(round.revealBy));
            return Verdict(Outcome.Slash, VerdictLib.WITHHELD, 1, members);
        }
        uint8 silent = _silent(round, size);
        require(silent == 0 || block.timestamp >= round.openBy, DeadlineNotReached(round.openBy));
        uint8 lost = silent | uint8(round.nonFinite & parties);
        uint8 out = lost | uint8(round.mismatched & parties);
        uint8 good = ~(out >> 1) & members;
        // Causes in the order of docs/protocol.md §7; the first hit decides.
        if (silent & 1 != 0) return Verdict(Outcome.Slash, VerdictLib.WITHHELD, lost, good);
        if (lost & 1 != 0) return Verdict(Outcome.Slash, VerdictLib.NON_FINITE, lost, good);
        if (round.positions < model.minPositions) {
            return Verdict(Outcome.Inconclusive, VerdictLib.TOO_FEW_POSITIONS, lost, good);
        }
        if (!_isCompared(round, model, out, size)) {
            return Verdict(Outcome.Inconclusive, VerdictLib.NOT_COMPARED, lost, good);
        }
        return _judge(round, model, out, lost, size);
    }

    /// @inheritdoc IAdjudicator
    function witnesses(
        bytes32 record,
        ModelId modelId,
        uint256 requests,
        uint256 size,
        uint256 total,
        uint8 clique
    ) external view returns (uint8 near, uint8 strange) {
        Round storage round = _rounds[msg.sender][record];
        Check storage model = _checks[modelId];
        bool revealed = round.revealed == Math.min(requests, model.checkedRequests);
        for (uint256 k = 0; k < total - size; ++k) {
            uint256 party = size + 1 + k;
            if ((round.mismatched >> party) & 1 != 0) continue;
            bool isNear = _hasOpened(round, party, revealed);
            bool isStrange = !isNear;
            if (isNear && clique != 0) (isNear, isStrange) = _stand(round, model, party, clique);
            if (isNear) near |= uint8(1 << k); // at most 7
            if (!isStrange) continue;
            // Who ran a false task of its scheduler has this long to show it, which ends the job and frees its lock.
            require(block.timestamp >= round.openBy, DeadlineNotReached(round.openBy));
            strange |= uint8(1 << k);
        }
    }

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────

    /// @inheritdoc IAdjudicator
    function checkedOf(ModelId modelId, uint256 requests, bytes32 draw)
        external
        view
        returns (uint16[] memory)
    {
        return DrawLib.checkedRequests(draw, requests, _checks[modelId].checkedRequests);
    }

    /// @inheritdoc IAdjudicator
    function drawOf(address network, Posting calldata posting, bytes32 secret, bytes32 beacon)
        external
        view
        returns (uint32[] memory seats, address[] memory owners, uint16[] memory checked)
    {
        Check storage model = _checks[posting.quote.modelId];
        bytes32 draw = DrawLib.draw(secret, posting.commitment, beacon);
        (seats, owners) = _seatsOf(IVeriLLM(network), posting, draw, model.committee);
        checked = DrawLib.checkedRequests(draw, posting.job.requests, model.checkedRequests);
    }

    /// @inheritdoc IAdjudicator
    function roundOf(address network, bytes32 record)
        external
        view
        returns (
            JobId jobId,
            uint8 revealed,
            uint16 positions,
            uint16 nonFinite,
            uint16 mismatched,
            uint16[16] memory served
        )
    {
        Round storage round = _rounds[network][record];
        jobId = round.jobId;
        revealed = round.revealed;
        positions = round.positions;
        nonFinite = round.nonFinite;
        mismatched = round.mismatched;
        served = round.served;
    }

    /// @inheritdoc IAdjudicator
    function pairOf(address network, bytes32 record, uint256 partyA, uint256 partyB)
        external
        view
        returns (PairStatistics memory)
    {
        return _rounds[network][record].statistics[_pair(partyA, partyB)];
    }

    /// @inheritdoc IAdjudicator
    function positionsOf(
        bytes32 sealedRecord,
        bytes32 beacon,
        uint16 request,
        uint32 promptTokens,
        uint32 newTokens,
        uint16 wanted
    ) external pure returns (uint32[] memory) {
        bytes32 seed = DrawLib.positionSeed(sealedRecord, beacon);
        return DrawLib.positions(seed, request, promptTokens, newTokens, wanted);
    }

    /// @dev Twin of what `seal` does on its own storage.
    function _seatsOf(IVeriLLM network, Posting calldata posting, bytes32 draw, uint256 wanted)
        private
        view
        returns (uint32[] memory seats, address[] memory owners)
    {
        seats = new uint32[](wanted);
        owners = new address[](wanted);
        uint256 found = 0;
        for (uint256 j = 0; found < wanted && j < DrawLib.MAX_STEPS; ++j) {
            uint32 slot = uint32(DrawLib.slot(draw, j, posting.slots)); // below a uint32
            (address owner, uint40 activeFrom, uint40 leftAt,) =
                network.seatOf(posting.quote.modelId, slot);
            bool eligible = DrawLib.isEligible(owner, activeFrom, leftAt, posting.postedAt);
            if (!eligible || owner == posting.worker || DrawLib.isDrawn(owners, found, owner)) {
                continue;
            }
            seats[found] = slot;
            owners[found++] = owner;
        }
        require(found == wanted, ILedger.DrawExhausted(found, wanted));
    }

    // ── What a call is about ────────────────────────────────────────────────────────────────────

    /// @dev The round of these very values.
    function _roundOf(
        address network,
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) private view returns (Round storage round) {
        bytes32 sealedRecord = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        bytes32 record = RecordLib.claimed(sealedRecord, claiming);
        round = _rounds[network][record];
        require(round.openBy != 0, RoundUnknown(record));
    }

    function _drawn(
        Posting calldata posting,
        Sealing calldata sealing,
        uint256 index,
        uint256 wanted
    ) private pure returns (uint256) {
        bytes32 draw = DrawLib.draw(sealing.secret, posting.commitment, sealing.beacon);
        uint16[] memory checked = DrawLib.checkedRequests(draw, posting.job.requests, wanted);
        require(index < checked.length, CheckedOutOfBounds(index, checked.length));
        return checked[index];
    }

    function _placeOf(
        Round storage round,
        Posting calldata posting,
        Sealing calldata sealing,
        bytes32 beacon,
        ModelSpec calldata spec,
        Checked calldata checked,
        uint16 positionIndex
    ) private view returns (OpeningLib.Place memory place) {
        ModelId modelId = ModelId.wrap(keccak256(abi.encode(spec)));
        require(
            ModelId.unwrap(modelId) == ModelId.unwrap(posting.quote.modelId),
            SpecMismatch(posting.quote.modelId, modelId)
        );
        Lengths storage lengths = round.lengths[checked.index];
        require(
            checked.newTokens != 0 && lengths.newTokens == checked.newTokens
                && lengths.promptTokens == checked.promptTokens,
            NotRevealed(checked.index)
        );
        place.checkedIndex = checked.index;
        // At most 16.
        place.checkedCount = uint16(Math.min(posting.job.requests, spec.checkedRequests));
        place.positionIndex = positionIndex;
        place.promptTokens = checked.promptTokens;
        place.newTokens = checked.newTokens;
        // Below 4096.
        place.request = uint32(_drawn(posting, sealing, checked.index, spec.checkedRequests));
        place.position = _position(posting, sealing, beacon, place, spec.positions);
    }

    function _position(
        Posting calldata posting,
        Sealing calldata sealing,
        bytes32 beacon,
        OpeningLib.Place memory place,
        uint256 wanted
    ) private pure returns (uint32) {
        bytes32 sealedRecord = RecordLib.sealedRecord(RecordLib.posted(posting), sealing);
        uint32[] memory drawn = DrawLib.positions(
            DrawLib.positionSeed(sealedRecord, beacon),
            place.request,
            place.promptTokens,
            place.newTokens,
            wanted
        );
        uint256 index = place.positionIndex;
        require(index < drawn.length, PositionOutOfBounds(index, drawn.length));
        return drawn[index];
    }

    // ── Sums ────────────────────────────────────────────────────────────────────────────────────

    /// @dev Before `openBy` an opening counts as served; after it only what was served is still compared.
    function _take(Round storage round, OpeningLib.Place memory place, Opening calldata opening)
        private
    {
        uint8 party = opening.party;
        if (!StatisticsLib.isFinite(opening.slices) || !StatisticsLib.isFinite(opening.finalState))
        {
            round.nonFinite |= uint16(1 << party); // at most 14
        }
        uint256 index = _index(place);
        if (round.openings[party].get(index)) return;
        require(block.timestamp < round.openBy, DeadlinePassed(round.openBy));
        round.openings[party].set(index);
        ++round.served[party];
        emit PositionServed(round.jobId, party, place.checkedIndex, place.positionIndex);
    }

    function _markMismatched(Round storage round, uint8 party, uint16 checkedIndex) private {
        uint16 bit = uint16(1 << party); // parties are at most 14
        if (round.mismatched & bit != 0) return;
        round.mismatched |= bit;
        emit ItemMismatched(round.jobId, party, checkedIndex);
    }

    function _addPairs(
        Round storage round,
        OpeningLib.Place memory place,
        ModelSpec calldata spec,
        Opening[] calldata openings
    ) private {
        uint256 zone = StatisticsLib.zone(place.position, place.promptTokens);
        (uint64[] memory sums, bool[] memory over) = StatisticsLib.compare(openings, spec, zone);
        uint32 layers = uint32(spec.profile.layers.length); // at most 33
        uint256 n = 0;
        for (uint256 i = 0; i < openings.length; ++i) {
            for (uint256 j = i + 1; j < openings.length; ++j) {
                PairStatistics memory added = PairStatistics(sums[n], layers, over[n] ? 1 : 0);
                _addPair(round, place, openings[i].party, openings[j].party, added);
                ++n;
            }
        }
    }

    /// @dev A pair that was compared at this position before is left as it is.
    function _addPair(
        Round storage round,
        OpeningLib.Place memory place,
        uint8 a,
        uint8 b,
        PairStatistics memory added
    ) private {
        BitMaps.BitMap storage compared = round.compared[_pair(a, b)];
        uint256 index = _index(place);
        if (compared.get(index)) return;
        compared.set(index);
        PairStatistics storage sum = round.statistics[_pair(a, b)];
        // At most 1024 positions of 33 layers with ratios below 2^39: all three stay far inside.
        sum.sum += added.sum;
        sum.cells += added.cells;
        sum.over += added.over;
        emit PairCompared(round.jobId, a, b, place.checkedIndex, place.positionIndex);
    }

    function _index(OpeningLib.Place memory place) private pure returns (uint256) {
        return uint256(place.checkedIndex) * SpecLib.MAX_POSITIONS + place.positionIndex;
    }

    function _pair(uint256 a, uint256 b) private pure returns (uint256) {
        return (a << 8) | b;
    }

    // ── The verdict ─────────────────────────────────────────────────────────────────────────────

    /// @dev Who is mismatched has shown why it cannot open.
    function _silent(Round storage round, uint256 size) private view returns (uint8 silent) {
        for (uint256 party = 0; party <= size; ++party) {
            if (round.served[party] < round.positions) silent |= uint8(1 << party);
        }
        return silent & uint8(~round.mismatched); // parties are at most 7
    }

    /// @dev Whether a witness opened finite states at all positions; nobody can where no request was revealed.
    function _hasOpened(Round storage round, uint256 party, bool revealed)
        private
        view
        returns (bool)
    {
        bool shown = !revealed || round.served[party] == round.positions;
        require(shown || block.timestamp >= round.openBy, DeadlineNotReached(round.openBy));
        return shown && (round.nonFinite >> party) & 1 == 0;
    }

    /// @dev What the means of this round's pairs are held to at either tier; all compare the same positions.
    function _means(Round storage round, Check storage model)
        private
        view
        returns (uint256 refund, uint256 slash)
    {
        uint256 positions = round.positions;
        uint256 least = uint256(model.manyPositions) * round.revealed;
        refund = VerdictLib.meanOf(positions, least, model.meanRefund, model.meanRefundMany);
        slash = VerdictLib.meanOf(positions, least, model.meanSlash, model.meanSlashMany);
    }

    /// @dev Whether a witness agrees with a member of the clique, and whether it is a stranger to each of them; one
    /// that nobody compared with somebody is neither.
    function _stand(Round storage round, Check storage model, uint256 party, uint256 clique)
        private
        view
        returns (bool near, bool strange)
    {
        uint256 cells = uint256(round.positions) * model.layers;
        (uint256 refund, uint256 slash) = _means(round, model);
        strange = true;
        for (uint256 member = 1; clique >> (member - 1) != 0; ++member) {
            if ((clique >> (member - 1)) & 1 == 0) continue;
            PairStatistics memory sums = round.statistics[_pair(member, party)];
            if (sums.cells != cells) {
                require(block.timestamp >= round.compareBy, NotCompared(member, party));
                strange = false;
                continue;
            }
            near = near || VerdictLib.agree(sums, refund, model.overRefund);
            strange = strange && !VerdictLib.agree(sums, slash, model.overSlash);
        }
    }

    /// @dev Whether all pairs that count are compared at all positions; reverts as long as somebody may still.
    function _isCompared(Round storage round, Check storage model, uint256 out, uint256 size)
        private
        view
        returns (bool)
    {
        uint256 cells = uint256(round.positions) * model.layers;
        for (uint256 b = 1; b <= size; ++b) {
            for (uint256 a = 0; a < b; ++a) {
                if (out & ((1 << a) | (1 << b)) != 0) continue;
                if (round.statistics[_pair(a, b)].cells == cells) continue;
                require(block.timestamp >= round.compareBy, NotCompared(a, b));
                return false;
            }
        }
        return true;
    }

    function _judge(Round storage round, Check storage model, uint256 out, uint8 lost, uint256 size)
        private
        view
        returns (Verdict memory)
    {
        (uint256 refund, uint256 slash) = _means(round, model);
        VerdictLib.Relations memory relations;
        relations.adjacency = new uint256[](size);
        relations.good = ~(out >> 1) & ((1 << size) - 1);
        for (uint256 b = 1; b <= size; ++b) {
            for (uint256 a = 0; a < b; ++a) {
                if (out & ((1 << a) | (1 << b)) != 0) continue;
                PairStatistics memory sums = round.statistics[_pair(a, b)];
                bool agree = VerdictLib.agree(sums, refund, model.overRefund);
                if (a != 0 && agree) {
                    relations.adjacency[a - 1] |= 1 << (b - 1);
                    relations.adjacency[b - 1] |= 1 << (a - 1);
                } else if (a == 0) {
                    if (agree) relations.refundTier |= 1 << (b - 1);
                    agree = VerdictLib.agree(sums, slash, model.overSlash);
                    if (agree) relations.slashTier |= 1 << (b - 1);
                }
            }
        }
        (Outcome outcome, uint8 reason, uint256 paid) = VerdictLib.judge(relations);
        if (reason == VerdictLib.NO_CLIQUE && round.mismatched & ((2 << size) - 1) != 0) {
            reason = VerdictLib.TASK_MISMATCH;
        }
        return Verdict(outcome, reason, lost, uint8(paid)); // bits of at most 7 members
    }
}
