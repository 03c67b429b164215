-- Give a claim back.
--
-- ARGV  2 nonce of the claim
-- Reply {'released'}, whosever it is by now
if is_of(redis.call('HGET', span, CLAIM), ARGV[2]) then
  redis.call('HDEL', span, CLAIM, BY, UNTIL)
end
return {'released'}
