/** An expected end: code and remedy are those of verillm.chain.refused. */
class Refused extends Error {
  constructor(code, message, remedy) {
    super(message);
    this.code = code;
    this.remedy = remedy;
  }
}

module.exports = { Refused };
